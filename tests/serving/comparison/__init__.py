"""Tests of the comparison of a new release with the old one."""
