"""The package's version: part of every measurement."""

VERSION = "0.1.0"
