//! `lockwell completions` and `lockwell man`.

use std::path::Path;

use clap::CommandFactory as _;
use clap_complete::Shell;
use clap_mangen::Man;

use crate::args::Cli;
use crate::exit::Failure;
use crate::json;

pub(crate) fn completions(shell: Shell) -> Result<u8, Failure> {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "lockwell", &mut text);
    json::print(&String::from_utf8_lossy(&text))?;
    Ok(0)
}

pub(crate) fn man(folder: Option<&Path>) -> Result<u8, Failure> {
    if let Some(folder) = folder {
        std::fs::create_dir_all(folder)?;
        clap_mangen::generate_to(Cli::command(), folder)?;
    } else {
        let mut text = Vec::new();
        Man::new(Cli::command()).render(&mut text)?;
        json::print(&String::from_utf8_lossy(&text))?;
    }
    Ok(0)
}
