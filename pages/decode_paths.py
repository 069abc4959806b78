from pages.common import nav

nav.header("decode_paths")
