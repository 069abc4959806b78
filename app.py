"""KV Cache Lab: the router. Page settings, navigation and the shared footer; it computes nothing."""

import streamlit as st

from pages.common import nav

st.set_page_config(page_title="KV Cache Lab", page_icon="pages/assets/icon.png", layout="wide")
nav.run()
