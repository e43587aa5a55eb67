"""Gateway and guards as containers: what they lack, how they are replaced or rebuilt."""
