//! Results whose errors are only logged.

/// Returns the value of a result, or logs its error and returns `None`. A macro, so that the line
/// has the target of the module that reads.
macro_rules! ok_or_log {
    ($level:ident, $result:expr, $message:literal) => {
        $result
            .inspect_err(|err| $level!(err = err as &dyn std::error::Error, $message))
            .ok()
    };
}
