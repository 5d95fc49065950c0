//! Queries to the container runtime, over one connection that is opened again when it ends.

use nodepulse_core::subjects::{BlockingQuery, Input, RuntimeAnswer, RuntimeInput, RuntimeList};
use nodepulse_io::tasks::Tasks;
use nodepulse_linux::cri::{Client, Connector};
use tokio::sync::mpsc;
use tracing::{debug, warn};

use super::nodefs::Directories;
use super::question::{Answer, Question};
use crate::config::Config;

/// Capacity of the queue: one question is asked at a time.
const QUESTIONS: usize = 1;

pub struct RuntimeClient {
    client: Client,
    max_images: Option<usize>,
    /// Receive the directory of the images.
    directories: Directories,
    /// `true` if the last list of images could not be read, which was logged.
    is_failing: bool,
}

impl RuntimeClient {
    /// Returns `None` if no runtime is used.
    pub fn new(config: &Config, connector: Connector, directories: &Directories) -> Option<Self> {
        let sockets = config.runtime_sockets();
        (!sockets.is_empty()).then(|| Self {
            client: Client::new(sockets, connector),
            max_images: config.max_images,
            directories: directories.clone(),
            is_failing: false,
        })
    }

    /// Starts a task that answers questions about the runtime, one at a time.
    pub(super) fn start(
        self,
        answers: mpsc::Sender<Box<Answer>>,
        tasks: &mut Tasks,
    ) -> mpsc::Sender<Box<Question>> {
        let (sender, questions) = mpsc::channel(QUESTIONS);
        tasks.spawn("container_runtime", self.run(questions, answers));
        sender
    }

    async fn run(
        mut self,
        mut questions: mpsc::Receiver<Box<Question>>,
        answers: mpsc::Sender<Box<Answer>>,
    ) {
        while let Some(question) = questions.recv().await {
            let input = match *question {
                Question::Subject(BlockingQuery::RuntimeStatus) => {
                    RuntimeInput::Checked(self.status().await)
                }
                Question::Subject(BlockingQuery::RuntimeImages) => {
                    RuntimeInput::Listed(self.images().await)
                }
                other => {
                    debug!(question = ?other, "not a question about the container runtime");
                    continue;
                }
            };
            let answer = Answer::Subject(Input::Runtime(input));
            if answers.send(Box::new(answer)).await.is_err() {
                return;
            }
        }
    }

    /// Returns the version and status of the runtime, or an error message of one line.
    async fn status(&mut self) -> Result<RuntimeAnswer, String> {
        let status = self.client.status().await;
        let (version, status) = status.map_err(|err| err.to_string())?;
        Ok(RuntimeAnswer { version, status })
    }

    /// Returns the images of the runtime and their directory, as far as it answers.
    async fn images(&mut self) -> RuntimeList {
        let imagefs = self.client.imagefs().await;
        let imagefs = ok_or_log!(debug, imagefs, "file system of the images not read").flatten();
        if let Some(directory) = &imagefs {
            self.directories.report_images(directory.clone());
        }
        let listed = self.client.images(self.max_images).await;
        let was_failing = std::mem::replace(&mut self.is_failing, listed.is_err());
        if let (Err(err), false) = (&listed, was_failing) {
            let err = err as &dyn std::error::Error;
            warn!(err, "images of the container runtime not read, will retry");
        }
        RuntimeList {
            images: listed.ok(),
            imagefs,
        }
    }
}
