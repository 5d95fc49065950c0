//! The status is computed every ten seconds, and sent when it has something to say.
