//! Neural networks as graphs of typed layers: shapes, parameters, FLOPs, bytes, and a zoo of published models.
