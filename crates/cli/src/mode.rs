//! Modes as chmod(1) takes them: octal numbers, and words such as `u=rwx,go-w,+X`.

/// A change of permission bits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ModeChange {
    clauses: Vec<Clause>,
}

/// One clause: the classes that it changes, the operator, and the bits.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Clause {
    /// Bits that belong to the classes named; all of them if none was.
    class_bits: u16,
    /// No class was named: the umask holds bits back.
    masked: bool,
    operator: Operator,
    bits: Bits,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operator {
    Add,
    Remove,
    Set,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bits {
    /// These, repeated for all classes; and `X`: execution where it makes sense.
    Given { bits: u16, execute_if_any: bool },
    /// The bits of another class; the shift says which.
    Copied { shift: u16 },
}

const ALL: u16 = 0o7777;

impl ModeChange {
    /// As [`ModeChange::parse`], for the command line's grammar.
    pub(crate) fn read(text: &str) -> Result<ModeChange, &'static str> {
        ModeChange::parse(text).ok_or("neither octal, as 644, nor words, as u=rwx,go-w")
    }

    /// Reads a mode; `None` if it is none.
    pub(crate) fn parse(text: &str) -> Option<ModeChange> {
        if text.starts_with(|c: char| c.is_ascii_digit()) {
            let bits = u16::from_str_radix(text, 8)
                .ok()
                .filter(|&bits| bits <= ALL)?;
            let bits = Bits::Given {
                bits,
                execute_if_any: false,
            };
            let clause = Clause {
                class_bits: ALL,
                masked: false,
                operator: Operator::Set,
                bits,
            };
            return Some(ModeChange {
                clauses: vec![clause],
            });
        }
        let mut clauses = Vec::new();
        for part in text.split(',') {
            parse_part(part, &mut clauses)?;
        }
        Some(ModeChange { clauses })
    }

    /// The bits after the change.
    pub(crate) fn apply(&self, before: u16, is_dir: bool, umask: u16) -> u16 {
        self.clauses.iter().fold(before & ALL, |mode, clause| {
            clause.apply(mode, is_dir, umask)
        })
    }
}

impl Clause {
    fn apply(&self, mode: u16, is_dir: bool, umask: u16) -> u16 {
        let mut bits = match self.bits {
            Bits::Given {
                bits,
                execute_if_any,
            } => {
                let execute = execute_if_any && (is_dir || mode & 0o111 != 0);
                bits | if execute { 0o111 } else { 0 }
            }
            Bits::Copied { shift } => {
                let class = (mode >> shift) & 0o7;
                class << 6 | class << 3 | class
            }
        };
        bits &= self.class_bits;
        if self.masked {
            bits &= !umask;
        }
        match self.operator {
            Operator::Add => mode | bits,
            Operator::Remove => mode & !bits,
            Operator::Set => mode & !self.class_bits | bits,
        }
    }
}

/// Reads `[ugoa]*([-+=][perms])+`.
fn parse_part(part: &str, clauses: &mut Vec<Clause>) -> Option<()> {
    let start = part.find(['+', '-', '='])?;
    let (classes, mut rest) = part.split_at(start);
    let mut class_bits = 0;
    for class in classes.chars() {
        class_bits |= match class {
            'u' => 0o4700,
            'g' => 0o2070,
            'o' => 0o1007,
            'a' => ALL,
            _ => return None,
        };
    }
    let masked = class_bits == 0;
    let class_bits = if masked { ALL } else { class_bits };
    while let Some(sign) = rest.chars().next() {
        let operator = match sign {
            '+' => Operator::Add,
            '-' => Operator::Remove,
            '=' => Operator::Set,
            _ => return None,
        };
        let body = rest.get(1..)?;
        let end = body.find(['+', '-', '=']).unwrap_or(body.len());
        let (letters, next) = body.split_at(end);
        clauses.push(Clause {
            class_bits,
            masked,
            operator,
            bits: parse_bits(letters)?,
        });
        rest = next;
    }
    Some(())
}

fn parse_bits(letters: &str) -> Option<Bits> {
    match letters {
        "u" => return Some(Bits::Copied { shift: 6 }),
        "g" => return Some(Bits::Copied { shift: 3 }),
        "o" => return Some(Bits::Copied { shift: 0 }),
        _ => {}
    }
    let (mut bits, mut execute_if_any) = (0, false);
    for letter in letters.chars() {
        match letter {
            'r' => bits |= 0o444,
            'w' => bits |= 0o222,
            'x' => bits |= 0o111,
            's' => bits |= 0o6000,
            't' => bits |= 0o1000,
            'X' => execute_if_any = true,
            _ => return None,
        }
    }
    Some(Bits::Given {
        bits,
        execute_if_any,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_do_what_chmod_does() {
        for (text, before, is_dir, after) in [
            ("644", 0o4755, false, 0o644),
            ("4755", 0, false, 0o4755),
            ("u+x", 0o644, false, 0o744),
            ("go-rwx", 0o777, false, 0o700),
            ("a=r,u+w", 0o777, false, 0o644),
            ("+X", 0o644, false, 0o644),
            ("+X", 0o744, false, 0o755),
            ("+X", 0o644, true, 0o755),
            ("+w", 0o444, false, 0o644),
            ("=", 0o7777, false, 0),
            ("g=u", 0o750, false, 0o770),
            ("u+s,g+s,o+t", 0o755, false, 0o7755),
            ("u=rw-r", 0o700, false, 0o200),
            ("o+s", 0o700, false, 0o700),
        ] {
            let change = ModeChange::parse(text).unwrap_or_else(|| panic!("{text}"));
            assert_eq!(change.apply(before, is_dir, 0o022), after, "{text}");
        }
    }

    #[test]
    fn nonsense_is_refused() {
        for text in ["", "8", "77777", "u", "z+x", "u+q", "u+x,", "rwx"] {
            assert_eq!(ModeChange::parse(text), None, "{text}");
        }
    }
}
