//! Events, kills, shutdown, and what can be asked on this machine.
