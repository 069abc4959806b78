"""Published models: what their K/V cache costs and what it saves, from a preset or a config.json."""
