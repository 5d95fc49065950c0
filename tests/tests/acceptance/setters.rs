//! What each field of the Node says.
