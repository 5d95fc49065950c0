//! `nodepulse-simulate`: simulated nodes against a real API server.

#![forbid(unsafe_code)]
#![allow(dead_code, reason = "the next changes use it")]

mod address;
mod arguments;
mod node;
mod pod;
mod pods;
mod tally;

fn main() {}
