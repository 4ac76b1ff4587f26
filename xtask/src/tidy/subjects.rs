//! The rule of commits: `type(scope): summary`, or `type(scope)!: summary`, in at most 72
//! characters, and no banned words.

use std::path::Path;
use std::process::Command;

use super::finding::Finding;
use super::words;

/// The last commit from before the rule; what is older is not looked at.
const SINCE: &str = "d71e7455fc77e7778464927b2bf4432466dd2734";
/// How many commits are looked at, at most.
const RECENT: &str = "-n50";
/// Longest subject, in characters.
const LONGEST: usize = 72;

/// A commit's short name and its message.
pub(super) type Commit = (String, String);

/// The newest commits of this branch.
pub(super) fn newest(root: &Path) -> Vec<Commit> {
    let range = format!("{SINCE}..HEAD");
    let log = Command::new("git")
        .args([
            "log",
            RECENT,
            "-z",
            "--no-merges",
            "--format=%h%n%B",
            &range,
        ])
        .current_dir(root)
        .output();
    // A shallow clone does not have the older commit, and then cannot be asked.
    let Some(log) = log.ok().filter(|log| log.status.success()) else {
        return Vec::new();
    };
    let text = String::from_utf8_lossy(&log.stdout);
    let commits = text
        .split('\0')
        .filter_map(|commit| commit.trim().split_once('\n'));
    commits
        .map(|(id, message)| (id.to_owned(), message.to_owned()))
        .collect()
}

/// Checks commits.
pub(super) fn check(commits: &[Commit]) -> Vec<Finding> {
    commits
        .iter()
        .flat_map(|(id, message)| wrong(id, message))
        .collect()
}

/// Returns the faults of a commit's message.
fn wrong(id: &str, message: &str) -> Vec<Finding> {
    let commit = Path::new("commit").join(id);
    let subject = message.lines().next().unwrap_or_default();
    let mut all = Vec::new();
    let columns = subject.chars().count();
    if columns > LONGEST {
        let what = format!("subject of {columns} characters, more than {LONGEST}");
        all.push(Finding::new(&commit, what));
    }
    if !has_type(subject) {
        all.push(Finding::new(
            &commit,
            "subject is not `type(scope): summary`",
        ));
    }
    let words = message.lines().flat_map(words::persons);
    all.extend(words.map(|word| Finding::new(&commit, format!("the message says `{word}`"))));
    all
}

fn has_type(subject: &str) -> bool {
    let Some((head, summary)) = subject.split_once(": ") else {
        return false;
    };
    // A breaking change has a mark before the colon.
    let head = head.strip_suffix('!').unwrap_or(head);
    let kind = head.split('(').next().unwrap_or_default();
    let scoped = head == kind || head.ends_with(')');
    let is_word = !kind.is_empty() && kind.chars().all(|c| c.is_ascii_lowercase());
    scoped && is_word && !summary.trim().is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_rule_of_messages_can_fail() {
        let count = |message: &str| wrong("0", message).len();
        let fine = "fix(a): mend\n\nThe caller waits.";
        assert_eq!(count(fine), 0);
        assert_eq!(count("docs: say so"), 0);
        assert_eq!(count("feat(a)!: keep the cause"), 0);
        assert_eq!(count("feat!(a): keep the cause"), 1);
        assert_eq!(count("mend"), 1);
        assert_eq!(count("fix(a: mend"), 1);
        assert_eq!(count(&format!("fix(a): {}", "x".repeat(LONGEST))), 1);
        assert_eq!(
            count(&fine.replace("The caller", concat!("Some", "body"))),
            1
        );
    }
}
