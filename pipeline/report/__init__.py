"""One HTML file of the tables: findings first, then charts."""
