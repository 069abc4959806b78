from pages.common import nav

nav.header("mask_explorer")
