"""Gasanov, Khaled, Horvath and Richtarik: FLIX."""
