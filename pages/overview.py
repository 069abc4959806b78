from pages.common import nav

nav.header("overview")
