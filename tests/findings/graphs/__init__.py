"""Tests of whether a graph would work."""
