//! The command blocks of a page of the book, as one script.
//!
//! | in the page | meaning |
//! |---|---|
//! | a block `sh` | commands, run by bash in the order of the page, in one folder |
//! | a block `text` right after it | what they print; a line `...` stands for any lines |
//! | a block `LANGUAGE,file=NAME` | the content of the file NAME in that folder |
//! | `sh,long` | runs in long tests only |
//! | `sh,debian` | runs in a Debian that was just made |
//! | `<!-- needs: root fuse gcc -->` | what the page needs: root, FUSE, programs |

use std::fmt::Write;

use extant_testkit::Need;
use extant_testkit::tools::workspace;

/// When a block runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Runs {
    Always,
    InLongTests,
    InDebian,
}

/// Commands of a page.
#[derive(Debug, PartialEq, Eq)]
struct Commands {
    line: usize,
    runs: Runs,
    text: String,
    prints: Option<String>,
}

/// One thing that a reader does.
#[derive(Debug, PartialEq, Eq)]
enum Step {
    Save { name: String, text: String },
    Run(Commands),
}

/// A page of `docs/book`.
#[derive(Debug)]
pub(crate) struct Page {
    name: String,
    text: String,
    steps: Vec<Step>,
}

/// The line that is printed before the output of the block at a line.
fn marker(line: usize) -> String {
    format!("### block at line {line}")
}

impl Page {
    pub(crate) fn read(name: &str) -> Page {
        let path = workspace().join("docs/book").join(name);
        Page::parse(name, std::fs::read_to_string(path).unwrap())
    }

    fn parse(name: &str, text: String) -> Page {
        let mut steps = Vec::new();
        let mut lines = text.lines().enumerate().peekable();
        // The block before ended on the line above, but for blank ones.
        let mut follows = false;
        while let Some((number, line)) = lines.next() {
            let Some(info) = line.strip_prefix("```") else {
                follows &= line.trim().is_empty();
                continue;
            };
            let body: Vec<&str> = lines
                .by_ref()
                .map(|(_, line)| line)
                .take_while(|line| *line != "```")
                .collect();
            let body = body.join("\n") + "\n";
            let is_output = info == "text" && std::mem::take(&mut follows);
            match (info, steps.last_mut()) {
                (_, Some(Step::Run(commands))) if is_output => commands.prints = Some(body),
                _ => {
                    let step = step(number + 1, info, body);
                    follows = matches!(step, Some(Step::Run(_)));
                    steps.extend(step);
                }
            }
        }
        let name = name.to_owned();
        Page { name, text, steps }
    }

    /// Programs and rights that the page says it needs.
    pub(crate) fn needs(&self) -> Vec<Need> {
        let words = self.text.split("<!-- needs: ").nth(1);
        let words = words.and_then(|rest| rest.split(" -->").next());
        let words = words.unwrap_or_default().split_whitespace();
        let needs = words.map(|word| match word {
            "root" => Need::Root,
            "fuse" => Need::Fuse,
            // A test lives as long as its process: so may the names.
            program => Need::Tool(Box::leak(program.to_owned().into_boxed_str())),
        });
        needs.collect()
    }

    /// The blocks that `runs` chooses, with the files between them, as a script of bash.
    pub(crate) fn script(&self, runs: impl Fn(Runs) -> bool) -> String {
        let mut script = "set -eu -o pipefail\n".to_owned();
        for step in &self.steps {
            match step {
                Step::Save { name, text } => {
                    writeln!(script, "cat >'{name}' <<'END-OF-FILE'\n{text}END-OF-FILE").unwrap();
                }
                Step::Run(commands) if runs(commands.runs) => {
                    let marker = marker(commands.line);
                    writeln!(script, "echo '{marker}'\n{}", commands.text).unwrap();
                }
                Step::Run(_) => {}
            }
        }
        script
    }

    /// That `out`, the output of the script, is what the page shows.
    ///
    /// # Panics
    /// Compares it, and fails with the line of the page that differs.
    pub(crate) fn compare(&self, out: &str, runs: impl Fn(Runs) -> bool) {
        let mut rest = out;
        for step in self.steps.iter().rev() {
            let Step::Run(commands) = step else { continue };
            if !runs(commands.runs) {
                continue;
            }
            let marker = marker(commands.line) + "\n";
            let (before, printed) = rest.rsplit_once(&marker).unwrap();
            rest = before;
            if let Some(expected) = &commands.prints {
                assert!(
                    is_like(printed, expected),
                    "{} shows at line {}:\n{expected}but it is:\n{printed}",
                    self.name,
                    commands.line,
                );
            }
        }
    }
}

fn step(line: usize, info: &str, text: String) -> Option<Step> {
    if let Some((_, name)) = info.split_once(",file=") {
        let name = name.to_owned();
        return Some(Step::Save { name, text });
    }
    let runs = match info {
        "sh" => Runs::Always,
        "sh,long" => Runs::InLongTests,
        "sh,debian" => Runs::InDebian,
        _ => return None,
    };
    Some(Step::Run(Commands {
        line,
        runs,
        text,
        prints: None,
    }))
}

/// Returns whether `text` is `pattern`, in which lines `...` stand for any lines.
fn is_like(text: &str, pattern: &str) -> bool {
    let mut rest = text;
    let mut is_anchored = true;
    let parts: Vec<&str> = pattern.split("...\n").collect();
    for (i, part) in parts.iter().enumerate() {
        let is_last = i + 1 == parts.len();
        if is_last && !is_anchored {
            return rest.ends_with(part);
        }
        let Some(at) = rest.find(part) else {
            return false;
        };
        if is_anchored && at != 0 {
            return false;
        }
        rest = &rest[at + part.len()..];
        is_anchored = false;
    }
    rest.is_empty()
}

const PAGE: &str = "# Page\n<!-- needs: root nbdkit -->\n\n```c,file=a.c\nint a;\n```\n\n```sh\n\
    echo 1\n```\n\n```text\n1\n```\n\n```sh,long\necho 2\n```\n\nProse.\n\n```text\n2\n```\n";

#[test]
fn pages_are_scripts() {
    let page = Page::parse("page", PAGE.to_owned());
    assert_eq!(page.needs(), [Need::Root, Need::Tool("nbdkit")]);
    let script = page.script(|runs| runs == Runs::Always);
    let expected = "set -eu -o pipefail\ncat >'a.c' <<'END-OF-FILE'\nint a;\nEND-OF-FILE\n\
                    echo '### block at line 8'\necho 1\n\n";
    assert_eq!(script, expected);
    assert!(page.script(|_| true).contains("echo 2"));
    page.compare("### block at line 8\n1\n", |runs| runs == Runs::Always);
    // Text behind prose is no output of the block before.
    let both = "### block at line 8\n1\n### block at line 16\nanything\n";
    page.compare(both, |_| true);
}

#[test]
#[should_panic(expected = "page shows at line 8")]
fn other_output_is_found() {
    let page = Page::parse("page", PAGE.to_owned());
    page.compare("### block at line 8\n2\n", |runs| runs == Runs::Always);
}

#[test]
fn dots_stand_for_any_lines() {
    assert!(is_like("a\nb\nc\n", "a\n...\nc\n") && is_like("a\nc\n", "a\n...\nc\n"));
    assert!(is_like("a\nb\n", "...\nb\n") && is_like("a\nb\n", "a\n...\n"));
    assert!(!is_like("a\nb\nc\n", "a\n...\nd\n") && !is_like("x\na\n", "a\n...\n"));
    assert!(is_like("a\n", "a\n") && !is_like("a\nb\n", "a\n"));
}
