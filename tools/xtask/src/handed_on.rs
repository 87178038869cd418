//! Arguments that are passed on to another program.

#[derive(Debug, clap::Args)]
pub(crate) struct HandedOn {
    /// `--install`: install what is missing. All other arguments are passed on.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGS")]
    pub(crate) args: Vec<String>,
}
