"""KV Cache Lab: the router. Page settings, navigation and the shared footer; it computes nothing."""

import streamlit as st

from pages.common import nav

st.set_page_config(page_title="KV Cache Lab", page_icon=":material/table_rows:", layout="wide")
page = st.navigation(nav.pages())
page.run()
nav.footer()
