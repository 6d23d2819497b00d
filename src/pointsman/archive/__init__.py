"""The bundled downstream server, a program of its own."""
