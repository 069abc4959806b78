"""KV Cache Lab: the router. Page settings, navigation and the shared footer; it computes nothing."""

from pages.common import nav

nav.run()
