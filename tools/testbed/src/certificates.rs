//! Throwaway certificates.

use std::{
    fs::{self, Permissions},
    os::unix::fs::{PermissionsExt, chown},
    path::PathBuf,
};

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, IsCa, KeyPair, KeyUsagePurpose,
    date_time_ymd,
};
use tempfile::TempDir;

use crate::{Error, programs::Nobody};

/// A folder of certificates, all signed by one authority: `ca`, `server` for the name `localhost`, `member`
/// for the address 127.0.0.1, by which the members of groups know each other, `expired` for the same address,
/// which was over long ago, and `ours` for a client. Each is a file with the ending `.pem`, and its key one
/// with `.key`.
#[derive(Debug)]
pub struct Certificates(TempDir);

impl Certificates {
    /// Makes them.
    pub fn make() -> Result<Self, Error> {
        let this = Self(TempDir::new().map_err(Error::io("a temporary folder"))?);
        this.fill().map_err(|error| Error::State(format!("certificates: {error}")))?;
        if let Some(Nobody { uid, gid }) = Nobody::if_root() {
            // Postgres runs as nobody, and takes no key that others than its user can read.
            let set = fs::set_permissions(this.0.path(), Permissions::from_mode(0o711))
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

    fn fill(&self) -> Result<(), Box<dyn std::error::Error>> {
        let (mut authority, authority_key) = (params("ca", &[])?, KeyPair::generate()?);
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        authority.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let authority = authority.self_signed(&authority_key)?;
        self.write("ca", &authority.pem(), &authority_key)?;
        for (name, address) in
            [("server", "localhost"), ("member", "127.0.0.1"), ("expired", "127.0.0.1"), ("ours", "lockwell")]
        {
            let (mut params, key) = (params(name, &[address])?, KeyPair::generate()?);
            if name == "expired" {
                params.not_after = date_time_ymd(2020, 1, 2);
            }
            self.write(name, &params.signed_by(&key, &authority, &authority_key)?.pem(), &key)?;
        }
        Ok(())
    }

    fn write(&self, name: &str, certificate: &str, key: &KeyPair) -> std::io::Result<()> {
        fs::write(self.file(&format!("{name}.pem")), certificate)?;
        let file = self.file(&format!("{name}.key"));
        fs::write(&file, key.serialize_pem())?;
        fs::set_permissions(file, Permissions::from_mode(0o600))
    }
}

/// Those of a certificate for these addresses, which is no authority.
fn params(name: &str, addresses: &[&str]) -> Result<CertificateParams, rcgen::Error> {
    let addresses: Vec<_> = addresses.iter().map(|&address| address.to_owned()).collect();
    let mut params = CertificateParams::new(addresses)?;
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::ExplicitNoCa;
    Ok(params)
}
