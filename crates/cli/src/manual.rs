//! The manual pages and what shells complete, from the grammar.

use std::fs;
use std::io;
use std::path::Path;

use clap::Command;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};

use crate::args::{self, examples_of, see_also};
use crate::failure::{At, Failure, Outcome};
use crate::option_list::{FRONT_END, LINUX, OptionText};
use crate::output::{Output, write_file};

/// Footer of each page.
const VERSION: &str = concat!("extant ", env!("CARGO_PKG_VERSION"));
/// How commands end that do not say so themselves.
const EXIT_STATUS: &str = "0 success, 1 failure, 2 wrong usage.";
/// Beginning of the paragraph of those that do.
const EXIT_STATUS_IS: &str = "Exit status: ";

/// Writes `extant.1`, a page for every command and that of the mount options to `dir`.
pub(crate) fn write(dir: &Path) -> Outcome {
    pages(dir).into()
}

/// Prints a shell's script.
pub(crate) fn complete(shell: clap_complete::Shell) -> Outcome {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut args::grammar(), "extant", &mut script);
    let mut out = Output::new();
    out.bytes(&script).and_then(|()| out.finish()).into()
}

fn pages(dir: &Path) -> Result<(), Failure> {
    fs::create_dir_all(dir).at(dir.display())?;
    let mut grammar = args::grammar().disable_help_subcommand(true);
    grammar.build();
    let commands = grammar
        .get_subcommands()
        .filter(|command| !command.is_hide_set());
    for command in commands.chain([&grammar]) {
        let file = dir.join(Man::new(command.clone()).get_filename());
        let mut page = Vec::new();
        render(command, &mut page).at(file.display())?;
        write_file(&file, page)?;
    }
    let file = dir.join("extant-options.5");
    let mut page = Vec::new();
    options(&mut page).at(file.display())?;
    write_file(&file, page)
}

/// The paragraphs of a text, without `Exit status: ` what such a one says, and the others.
fn without_exit_status(text: &str) -> (Vec<&str>, Option<&str>) {
    let (status, others): (Vec<&str>, _) = text
        .split("\n\n")
        .partition(|paragraph| paragraph.starts_with(EXIT_STATUS_IS));
    let status = status.first();
    (
        others,
        status.and_then(|text| text.strip_prefix(EXIT_STATUS_IS)),
    )
}

/// A page about a command, or about all of them.
fn render(command: &Command, page: &mut Vec<u8>) -> io::Result<()> {
    let about = command.get_long_about().or(command.get_about());
    let about = about.map(ToString::to_string).unwrap_or_default();
    let (description, mut status) = without_exit_status(&about);
    let after = command.get_after_long_help().map(ToString::to_string);
    let after = after.unwrap_or_default();
    let (mut notes, general) = without_exit_status(&after);
    status = status.or(general);
    notes.retain(|note| !note.starts_with("Examples:"));

    let man = Man::new(command.clone().long_about(description.join("\n\n"))).source(VERSION);
    man.render_title(page)?;
    man.render_name_section(page)?;
    let usage = command.clone().render_usage().to_string();
    section(page, "SYNOPSIS", &[usage.trim_start_matches("Usage: ")])?;
    man.render_description_section(page)?;
    man.render_options_section(page)?;
    if command.has_subcommands() {
        man.render_subcommands_section(page)?;
    }
    section(page, "EXIT STATUS", &[status.unwrap_or(EXIT_STATUS)])?;
    if command.has_subcommands() {
        section(page, "NOTES", &notes)?;
        examples(page, after.split("Examples:\n").nth(1).unwrap_or_default())?;
        let pages = command.get_subcommands().filter(|c| !c.is_hide_set());
        let pages = pages.map(|c| format!("extant-{}(1)", c.get_name()));
        let pages: Vec<String> = pages.chain(["extant-options(5)".into()]).collect();
        return section(page, "SEE ALSO", &[&pages.join(", ")]);
    }
    let name = command.get_name();
    examples(page, &examples_of(name).join("\n"))?;
    let pages: Vec<&str> = ["extant(1)"]
        .iter()
        .chain(see_also(name))
        .copied()
        .collect();
    section(page, "SEE ALSO", &[&pages.join(", ")])
}

fn section(page: &mut Vec<u8>, title: &str, paragraphs: &[&str]) -> io::Result<()> {
    let mut roff = Roff::default();
    roff.control("SH", [title]);
    for (number, paragraph) in paragraphs.iter().enumerate() {
        if number > 0 {
            roff.control("PP", []);
        }
        roff.text([roman(*paragraph)]);
    }
    roff.to_writer(page)
}

/// Lines of a shell, as they are.
fn examples(page: &mut Vec<u8>, lines: &str) -> io::Result<()> {
    if lines.is_empty() {
        return Ok(());
    }
    let mut roff = Roff::default();
    roff.control("SH", ["EXAMPLES"]);
    roff.control("nf", []);
    for line in lines.lines() {
        roff.text([roman(line.trim())]);
    }
    roff.control("fi", []);
    roff.to_writer(page)
}

/// The page of the mount options.
fn options(page: &mut Vec<u8>) -> io::Result<()> {
    let mut roff = Roff::default();
    roff.control("TH", ["extant-options", "5", "", VERSION]);
    roff.to_writer(page)?;
    section(page, "NAME", &["extant-options - mount options of extant"])?;
    section(
        page,
        "SYNOPSIS",
        &["extant mount -o OPTION[,OPTION]... IMAGE DIR"],
    )?;
    let words = "Options are separated by commas, and may be given in several -o. An unknown \
                 option, or a bad value, is refused by name. Defaults of the superblock \
                 (tune2fs -o) count where no option says otherwise. Other options of Linux's ext4 \
                 tune what there is not here and have no effect, or are refused with a reason.";
    section(page, "DESCRIPTION", &[words])?;
    list(page, "OPTIONS OF EXT4", LINUX)?;
    list(page, "OPTIONS OF THE MOUNT", FRONT_END)?;
    section(
        page,
        "SEE ALSO",
        &["extant(1), extant-mount(1), extant-umount(1), ext4(5), mount(8)"],
    )
}

fn list(page: &mut Vec<u8>, title: &str, options: &[OptionText]) -> io::Result<()> {
    let mut roff = Roff::default();
    roff.control("SH", [title]);
    for (names, text) in options {
        roff.control("TP", []);
        roff.text([bold(*names)]);
        roff.text([roman(*text)]);
    }
    roff.to_writer(page)
}
