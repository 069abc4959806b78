"""Results drawn with Plotly: `result -> Figure`, pure, without Streamlit, never shown here."""
