//! Throwaway certificates.

use std::{
    fs,
    os::unix::fs::{PermissionsExt, chown},
    path::PathBuf,
    process::Command,
};

use tempfile::TempDir;

use crate::{
    Error,
    programs::{Nobody, find},
};

/// A folder of certificates, all signed by one authority: `ca`, `server` for the name `localhost`, `member`
/// for the address 127.0.0.1, by which the members of groups know each other, `expired` for the same address,
/// which was over long ago, and `ours` for a client. Each is a file with the ending `.pem`, and its key one
/// with `.key`.
#[derive(Debug)]
pub struct Certificates(TempDir);

impl Certificates {
    /// Makes them.
    pub fn make() -> Result<Self, Error> {
        let openssl = find("openssl", "openssl")?;
        let folder = TempDir::new().map_err(Error::io("a temporary folder"))?;
        let this = Self(folder);
        // Nothing of what the machine's own configuration adds.
        let write =
            |name: &str, contents: &str| fs::write(this.file(name), contents).map_err(Error::io(name));
        write("cnf", "[req]\ndistinguished_name=dn\n[dn]\n")?;
        let authority = ["basicConstraints=critical,CA:TRUE", "keyUsage=critical,keyCertSign"];
        this.sign(&openssl, "ca", None, &authority)?;
        let names = [("server", "DNS:localhost"), ("member", "IP:127.0.0.1"), ("ours", "DNS:lockwell")];
        for (name, alternative) in names {
            let alternative = format!("subjectAltName={alternative}");
            this.sign(&openssl, name, Some("ca"), &["basicConstraints=critical,CA:FALSE", &alternative])?;
        }
        this.sign_for_the_past(&openssl, "expired", "subjectAltName=IP:127.0.0.1\n")?;
        if let Some(Nobody { uid, gid }) = Nobody::if_root() {
            // Postgres runs as nobody, and takes no key that others than its user can read.
            let set = fs::set_permissions(this.0.path(), fs::Permissions::from_mode(0o711))
                .and_then(|()| chown(this.file("server.key"), Some(uid), Some(gid)));
            set.map_err(Error::io("the certificates"))?;
        }
        Ok(this)
    }

    /// The path of one of the files.
    pub fn file(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// The same, as text.
    pub fn path(&self, name: &str) -> String {
        self.file(name).display().to_string()
    }

    fn sign(&self, openssl: &str, name: &str, by: Option<&str>, extensions: &[&str]) -> Result<(), Error> {
        let mut command = Command::new(openssl);
        command.args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]);
        command.args(["-days", "2", "-config", &self.path("cnf"), "-subj", &format!("/CN={name}")]);
        command.args(["-keyout", &self.path(&format!("{name}.key"))]);
        command.args(["-out", &self.path(&format!("{name}.pem"))]);
        if let Some(by) = by {
            command.args(["-CA", &self.path(&format!("{by}.pem"))]);
            command.args(["-CAkey", &self.path(&format!("{by}.key"))]);
        }
        for extension in extensions {
            command.args(["-addext", extension]);
        }
        run(command, name)
    }

    /// A certificate that is over. Only the command of an authority takes dates of the past.
    fn sign_for_the_past(&self, openssl: &str, name: &str, extensions: &str) -> Result<(), Error> {
        let write =
            |name: &str, contents: &str| fs::write(self.file(name), contents).map_err(Error::io(name));
        let folder = self.0.path().display();
        let authority = format!(
            "[ca]\ndefault_ca=ours\n[ours]\nnew_certs_dir={folder}\ndatabase={folder}/index\nserial={folder}/serial\n\
             policy=policy\ndefault_md=sha256\n[policy]\ncommonName=supplied\n"
        );
        for (name, contents) in
            [("authority", &*authority), ("index", ""), ("serial", "01\n"), ("extensions", extensions)]
        {
            write(name, contents)?;
        }
        let request = self.path(&format!("{name}.csr"));
        let mut command = Command::new(openssl);
        command.args(["req", "-new", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]);
        command.args(["-config", &self.path("cnf"), "-subj", &format!("/CN={name}")]);
        command.args(["-keyout", &self.path(&format!("{name}.key")), "-out", &request]);
        run(command, name)?;
        let mut command = Command::new(openssl);
        command.args(["ca", "-batch", "-notext", "-config", &self.path("authority"), "-in", &request]);
        command.args(["-cert", &self.path("ca.pem"), "-keyfile", &self.path("ca.key")]);
        command.args(["-startdate", "20200101000000Z", "-enddate", "20200102000000Z"]);
        command.args(["-extfile", &self.path("extensions"), "-out", &self.path(&format!("{name}.pem"))]);
        run(command, name)
    }
}

fn run(mut command: Command, name: &str) -> Result<(), Error> {
    let done = command.output().map_err(Error::io("openssl"))?;
    if done.status.success() {
        return Ok(());
    }
    Err(Error::State(format!("openssl cannot sign {name}: {}", String::from_utf8_lossy(&done.stderr))))
}
