"""How long a page's rerun takes beside a bare page's, as a ratio; run it by hand: `python -m tests.measure_rerun`.

One websocket client moves one slider of each page to values it has not had before, interleaved with
one slider of a bare page (one slider, one line of text) on a second server. Prints the medians'
ratio for each page; nothing is asserted, since machines are noisy.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from websockets.sync.client import connect

from tests.serve import ROOT, server

BARE = """import streamlit as st

value = st.slider("Slider", 0, 99, 7)
st.write(f"The slider is at {value}.")
"""
PAGES = {
    "mask_explorer": "mask_n_cached",
    "decode_paths": "paths_seed",
    "work_counts": "work_length",
    "sliding_window": "slide_step",
}
"""Page -> the key of the slider that is moved."""


class Client:
    """One visitor: opens a page, then moves one slider again and again."""

    def __init__(self, port: int, page: str = "", slider: str = "", query: str = "") -> None:
        self._open = ExitStack()
        connection = connect(f"ws://127.0.0.1:{port}/_stcore/stream", subprotocols=["streamlit"], max_size=None)
        self._socket = self._open.enter_context(connection)
        self._hash, self._sliders = "", {}
        self._page = page
        first = BackMsg()
        first.rerun_script.query_string = query
        self.opened_in = self._rerun(first)
        named = [s for s in self._sliders.values() if slider in s.id]
        if slider and not named:
            raise SystemExit(f"{page}: no slider {slider!r}; it has {sorted(self._sliders)}")
        if not named:
            return
        self.slider = named[0]
        self._value = self.slider.default[0]

    def close(self) -> None:
        self._open.close()

    def _rerun(self, message: BackMsg) -> float:
        message.rerun_script.page_script_hash = self._hash
        if self._page and not self._hash:
            message.rerun_script.page_name = self._page
        start = time.perf_counter()
        self._socket.send(message.SerializeToString())
        while True:
            answer = ForwardMsg()
            answer.ParseFromString(self._socket.recv(timeout=60))
            kind = answer.WhichOneof("type")
            if kind == "new_session":
                self._hash = answer.new_session.page_script_hash
            if kind == "delta" and answer.delta.new_element.HasField("slider"):
                slider = answer.delta.new_element.slider
                self._sliders[slider.id] = slider
            if kind == "delta" and answer.delta.new_element.HasField("exception"):
                raise SystemExit(f"{self._page}: {answer.delta.new_element.exception.message}")
            if kind == "script_finished" and answer.script_finished == ForwardMsg.FINISHED_SUCCESSFULLY:
                return time.perf_counter() - start

    def move(self) -> float:
        """Seconds from moving the slider one step on to the end of the rerun."""
        self._value += self.slider.step
        if self._value > self.slider.max:
            self._value = self.slider.min
        message = BackMsg()
        state = message.rerun_script.widget_states.widgets.add()
        state.id = self.slider.id
        if self.slider.options:
            state.string_array_value.data.append(self.slider.options[int(self._value)])
        else:
            state.double_array_value.data.append(self._value)
        return self._rerun(message)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=9, help="counted reruns of each (9)")
    parser.add_argument("--slider", action="append", default=[], metavar="PAGE=KEY", help="another slider of a page")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        bare_script = Path(folder) / "bare.py"
        bare_script.write_text(BARE)
        with server(ROOT / "app.py") as port, server(bare_script) as bare_port:
            for page, slider in [*PAGES.items(), *(pair.split("=") for pair in options.slider)]:
                client, bare = Client(port, page, slider), Client(bare_port)
                client.move(), bare.move()
                pairs = [(client.move(), bare.move()) for _ in range(options.runs)]
                client.close(), bare.close()
                mine, its = (statistics.median(times) for times in zip(*pairs, strict=True))
                print(
                    f"{page:15s} {slider:15s} {mine / its:5.2f} times a bare rerun"
                    f" (median of {options.runs}: {mine * 1e3:.0f} ms against {its * 1e3:.0f} ms)",
                    flush=True,
                )


if __name__ == "__main__":
    main()
