//! Checks that the checkout is a release: tag, clean tree, versions, changelog.

use anyhow::Result;

use super::CHART;
use crate::repo::{Repo, command, output};

#[derive(Debug, Default, Clone)]
struct Checkout {
    version: String,
    /// Tags of the commit.
    tags: Vec<String>,
    /// Output of `git status --porcelain`.
    changed: String,
    chart: String,
    changelog: String,
}

/// Returns one line for each reason why the checkout is not a release.
pub fn faults(repo: &Repo) -> Result<Vec<String>> {
    let git = |args: &[&str]| {
        let mut git = command("git");
        output(git.current_dir(&repo.root).args(args))
    };
    let tags = git(&["tag", "--points-at", "HEAD"])?;
    let checkout = Checkout {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        tags: tags.lines().map(str::to_owned).collect(),
        changed: git(&["status", "--porcelain"])?,
        chart: repo.read(&format!("{CHART}/Chart.yaml"))?,
        changelog: repo.read("CHANGELOG.md")?,
    };
    Ok(checkout.faults())
}

impl Checkout {
    fn faults(&self) -> Vec<String> {
        let version = &self.version;
        let mut faults = Vec::new();
        let tag = format!("v{version}");
        if !self.tags.contains(&tag) {
            faults.push(format!(
                "the tag {tag} does not point at this commit: git tag -a {tag}"
            ));
        }
        let changed = self.changed.lines().next();
        faults.extend(changed.map(|line| format!("the checkout has changes, such as `{line}`")));
        for key in ["version", "appVersion"] {
            let expected = format!("{key}: {version}");
            if self.chart.lines().all(|line| line != expected) {
                faults.push(format!("{CHART}/Chart.yaml lacks the line `{expected}`"));
            }
        }
        match self.section("Unreleased") {
            None => faults.push("CHANGELOG.md has no section `Unreleased`".to_owned()),
            Some(text) if !text.trim().is_empty() => {
                faults.push(format!(
                    "CHANGELOG.md has changes that are not in {version}"
                ));
            }
            Some(_) => {}
        }
        let released = self.section(&format!("{version} - "));
        if released.is_none_or(|text| text.trim().is_empty()) {
            faults.push(format!("CHANGELOG.md has no section `{version} - <date>`"));
        }
        faults
    }

    /// Returns the text below the level-two heading that begins with `title`, up to the next one.
    fn section(&self, title: &str) -> Option<&str> {
        let sections = self.changelog.split("\n## ").skip(1);
        let (_, text) = sections
            .filter(|section| section.starts_with(title))
            .find_map(|section| section.split_once('\n'))?;
        Some(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn released() -> Checkout {
        Checkout {
            version: "1.2.3".to_owned(),
            tags: vec!["latest".to_owned(), "v1.2.3".to_owned()],
            changed: String::new(),
            chart: "name: nodepulse\nversion: 1.2.3\nappVersion: 1.2.3\n".to_owned(),
            changelog: "# Changelog\n\n## Unreleased\n\n## 1.2.3 - 2026-01-02\n\n### Added\n- a\n\
                        \n## 1.2.2 - 2026-01-01\n\n- b\n"
                .to_owned(),
        }
    }

    #[test]
    fn a_tagged_commit_with_its_changelog_is_a_release() {
        assert_eq!(released().faults(), Vec::<String>::new());
    }

    #[test]
    fn each_thing_that_differs_is_a_fault() {
        type Change = fn(&mut Checkout);
        let table: [(Change, &str); 6] = [
            (|it| it.tags = vec!["v1.2".to_owned()], "the tag v1.2.3"),
            (|it| it.changed = " M a.rs\n".to_owned(), "`M a.rs`"),
            (
                |it| it.chart = it.chart.replace("appVersion: 1.2.3", ""),
                "`appVersion: 1.2.3`",
            ),
            (
                |it| it.changelog = it.changelog.replace("Unreleased\n", "Unreleased\n- c\n"),
                "not in 1.2.3",
            ),
            (
                |it| it.changelog = it.changelog.replace("1.2.3 - ", "1.2.4 - "),
                "`1.2.3 - <date>`",
            ),
            (
                |it| it.changelog = it.changelog.replace("Unreleased", "Next"),
                "`Unreleased`",
            ),
        ];
        for (change, expected) in table {
            let mut checkout = released();
            change(&mut checkout);
            let faults = checkout.faults();
            assert_eq!(faults.len(), 1, "{faults:?}");
            assert!(
                faults[0].replace("` M", "`M").contains(expected),
                "{faults:?}"
            );
        }
    }
}
