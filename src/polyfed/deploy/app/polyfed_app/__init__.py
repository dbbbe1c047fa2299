"""A run of polyfed as Flower's ServerApp and ClientApp."""
