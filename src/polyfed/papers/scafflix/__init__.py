"""Yi, Condat and Richtarik: Scafflix."""
