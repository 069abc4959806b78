from pages.common import nav

nav.header("sliding_window")
