"""Configuration of Prometheus and Grafana for a fleet, from its inventory. Pure."""
