//! An agent with an additional condition: `SwapOn`, for users who must find nodes with swap.
//!
//! A setter in this file and a line in [`setters`] are all it takes. Try it on a machine without a
//! kubelet: `cargo run --example custom_condition -- <kubeconfig> <node name>`.

use std::error::Error;
use std::path::Path;

use nodepulse::{
    Agent, Client, Clock, ComputedCondition, Config, CredentialSource, Overrides, SETTERS,
    SameStatus, Setter, Setters, Status,
};

/// True while the machine has swap.
const SWAP_ON: Setter = |context, status| {
    let (value, reason, message) = if context.facts.machine.swap.get() > 0 {
        (Status::True, "SwapIsOn", "the machine has swap")
    } else {
        (Status::False, "SwapIsOff", "the machine has no swap")
    };
    let verdict = ComputedCondition {
        type_: "SwapOn",
        status: value,
        reason,
        message,
    };
    status.push(verdict, SameStatus::ReplacesText);
    Ok(())
};

/// The agent's setters, and this file's.
pub fn setters() -> Setters {
    let mut all = SETTERS.to_vec();
    // Before Ready, which control planes expect to be the last condition of a new Node.
    let ready = all.iter().position(|(name, _)| *name == "Ready");
    all.insert(ready.unwrap_or(all.len()), ("SwapOn", SWAP_ON));
    all.leak()
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let (Some(kubeconfig), Some(name)) = (args.next(), args.next()) else {
        return Err("name a kubeconfig and a node".into());
    };
    let settings = Overrides {
        mode: Some("node".to_owned()),
        allow_ready_without_runtime: Some("true".to_owned()),
        ..Overrides::default()
    };
    let read = |path: &Path| std::fs::read_to_string(path);
    let config = Config::load(&settings, &|_| None, &read, &name)?;
    let source = CredentialSource::Kubeconfig(Path::new(&kubeconfig));
    let client = Client::from_credentials(source, config.lease_duration / 4).await?;
    let agent = Agent::new(config, Clock::kernel())
        .client(client)
        .setters(setters());
    Box::pin(agent.run(std::future::pending())).await?;
    Ok(())
}
