//! The agent in the process of the test, mostly under simulated time.

mod api_faults;
mod api_server;
mod certificate;
mod companion;
mod conditions;
mod container_runtime;
mod corpus;
mod custom_condition;
mod exits;
mod hostile_day;
mod kill_account;
mod metrics;
mod oom;
mod pod_events;
mod reload;
mod replay;
mod request_ceilings;
mod serve;
mod take_over;
