from pages.common import nav

nav.header("work_counts")
