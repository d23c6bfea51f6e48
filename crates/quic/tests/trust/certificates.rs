//! X.509 beside raw public keys: who gets in with a certificate, and who does not.

use crate::support::{Pair, at, configs, geo};
use crate::{connected, lost};
use bentpipe_quic::{Certificates, Config, Event, Identity, UnusableCertificate};
use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, CertifiedIssuer, DnType,
    ExtendedKeyUsagePurpose, IsCa, KeyIdMethod, KeyPair, KeyUsagePurpose, RevokedCertParams,
    SanType, SerialNumber, date_time_ymd,
};
use std::time::Duration;

/// 2026, when certificates of these tests are good.
const TODAY: Duration = Duration::from_secs(1_790_000_000);

/// A certificate and its key, as PEM.
struct Made {
    certificate: rcgen::Certificate,
    key: KeyPair,
}

impl Made {
    fn pem(&self) -> [String; 2] {
        [self.certificate.pem(), self.key.serialize_pem()]
    }

    fn shown(&self) -> Certificates {
        let [certificate, key] = self.pem();
        Certificates::new(certificate.as_bytes(), key.as_bytes()).unwrap()
    }
}

fn params(name: &str) -> CertificateParams {
    let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    params
}

/// One that signs itself, of an algorithm that is not ours.
fn self_signed() -> Made {
    let key = KeyPair::generate().unwrap();
    let certificate = params("other.example").self_signed(&key).unwrap();
    Made { certificate, key }
}

/// An authority of clients.
struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let key = KeyPair::generate().unwrap();
        Self(CertifiedIssuer::self_signed(params, key).unwrap())
    }

    fn signs(&self, change: impl FnOnce(&mut CertificateParams)) -> Made {
        let mut params = params("client.example");
        change(&mut params);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.0).unwrap();
        Made { certificate, key }
    }

    /// A list of what it has revoked.
    fn revokes(&self, serial: &SerialNumber) -> String {
        self.list(serial, 2027)
    }

    /// The same, whose time is over when `year` begins.
    fn list(&self, serial: &SerialNumber, year: i32) -> String {
        let list = CertificateRevocationListParams {
            this_update: date_time_ymd(year - 1, 1, 1),
            next_update: date_time_ymd(year, 1, 1),
            crl_number: SerialNumber::from(1),
            issuing_distribution_point: None,
            revoked_certs: vec![RevokedCertParams {
                serial_number: serial.clone(),
                revocation_time: date_time_ymd(2026, 1, 1),
                reason_code: None,
                invalidity_date: None,
            }],
            key_identifier_method: KeyIdMethod::Sha256,
        };
        list.signed_by(&self.0).unwrap().pem().unwrap()
    }
}

/// Both sides' configurations where the far side shows a certificate, and the near one `client`, if any, and trusts that.
fn certified(client: Option<&Made>) -> [Config; 2] {
    let mut configs = configs(&geo(10, 0.0), "rate", 1);
    let server = self_signed().shown();
    configs[0].peers = vec![server.key()];
    configs[0].certificates = client.map(Made::shown);
    configs[1].certificates = Some(server);
    configs[1].time_of_day = TODAY;
    configs
}

/// Whether the near side gets in, and if not, what the far side says of that.
fn admission(configs: &[Config; 2]) -> Result<Pair, String> {
    let mut pair = Pair::new(&geo(10, 0.0), configs, 1);
    pair.connect();
    pair.run_until(at(5000), |pair| connected(pair, "far"));
    if connected(&pair, "far") {
        return Ok(pair);
    }
    Err(lost(&pair, "far").unwrap_or_default())
}

#[test]
fn who_knows_no_raw_keys_is_known_by_the_key_of_its_certificate() {
    let client = self_signed();
    let mut configs = certified(Some(&client));
    let refused = admission(&configs).err().unwrap();
    let key = client.shown().key();
    assert!(
        refused.contains(&format!("{key} is not trusted here")),
        "{refused}"
    );
    configs[1].peers = vec![key];
    let mut pair = admission(&configs).unwrap();
    assert!(pair.told.iter().any(|(told, event)| *told == "far"
        && matches!(event, Event::Connected { key: known, .. } if *known == key)));
    pair.fetch(10_000);
    // And taken out again.
    let connection = pair.told.iter().find_map(|(told, event)| match event {
        Event::Connected { connection, .. } if *told == "far" => Some(*connection),
        _ => None,
    });
    assert!(pair.far.is_trusted(connection.unwrap()));
    pair.far.trust(Vec::new(), configs[1].certificates.clone());
    assert!(!pair.far.is_trusted(connection.unwrap()));
    // Who has none gets nowhere.
    configs[0].certificates = None;
    let none = admission(&configs).err().unwrap();
    assert!(
        none.contains("no certificates") || none.contains("NoCertificates"),
        "{none}"
    );
}

/// The far side shows a certificate too, and bentpipe's own near ends go on by raw keys.
#[test]
fn raw_keys_are_served_beside_certificates() {
    let path = geo(10, 0.0);
    let mut configs = configs(&path, "rate", 1);
    configs[1].certificates = Some(self_signed().shown());
    let mut pair = admission(&configs).unwrap();
    pair.fetch(10_000);
    configs[1].peers = vec![Identity::generate().unwrap().public()];
    let refused = admission(&configs).err().unwrap();
    assert!(refused.contains("ed25519:"), "{refused}");
    // Where the far side shows none, who knows no raw keys is not served.
    let mut without = certified(Some(&self_signed()));
    without[1].certificates = None;
    assert!(admission(&without).is_err());
}

#[test]
fn what_is_no_certificate_is_refused_with_what_was_expected() {
    let [certificate, _] = self_signed().pem();
    let [_, key] = self_signed().pem();
    let error = Certificates::new(certificate.as_bytes(), key.as_bytes()).unwrap_err();
    assert_eq!(error, UnusableCertificate::AnotherKey);
    for (certificate, key, said) in [
        ("", key.as_str(), "no certificate"),
        ("nonsense", &key, "no certificate"),
        (
            &certificate[..100],
            &key,
            "`-----END CERTIFICATE-----` is missing",
        ),
        (
            "-----BEGIN CERT\n",
            &key,
            "`-----BEGIN CERT` begins nothing",
        ),
        (&certificate, "", "secret key"),
        (&certificate, &certificate, "secret key"),
        (
            "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
            &key,
            "X.509",
        ),
    ] {
        let error = Certificates::new(certificate.as_bytes(), key.as_bytes()).unwrap_err();
        assert!(error.to_string().contains(said), "{error}");
    }
}

#[test]
fn authorities_vouch_for_clients_until_they_revoke_them() {
    let authority = Authority::new();
    let root = authority.0.pem();
    let trusting = |configs: &mut [Config; 2], revoked: Option<&str>| {
        let own = configs[1].certificates.take().unwrap();
        let own = own.with_authorities(root.as_bytes(), revoked.map(str::as_bytes));
        configs[1].certificates = Some(own.unwrap());
        configs[1].peers = Vec::new();
    };
    let good = authority.signs(|_| {});
    let late = authority.signs(|params| params.not_after = date_time_ymd(2025, 1, 1));
    let server = authority.signs(|params| {
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    });
    let strange = Authority::new().signs(|_| {});
    for (client, said) in [
        (&good, None),
        (&late, Some("expired")),
        (&server, Some("client authentication")),
        // Another of the same name.
        (&strange, Some("BadSignature")),
    ] {
        let mut configs = certified(Some(client));
        trusting(&mut configs, None);
        match (admission(&configs), said) {
            (Ok(_), None) => {}
            (Err(words), Some(said)) => {
                assert!(
                    words.contains(said) && words.contains("is not trusted"),
                    "{words}"
                );
            }
            (other, said) => panic!("{said:?}: {:?}", other.err()),
        }
    }
    let serial = SerialNumber::from(7);
    let number = serial.clone();
    let revoked = authority.signs(move |params| params.serial_number = Some(number));
    let list = authority.revokes(&serial);
    for (client, is_in) in [(&good, true), (&revoked, false)] {
        let mut configs = certified(Some(client));
        trusting(&mut configs, Some(&list));
        assert_eq!(admission(&configs).is_ok(), is_in);
    }
    // One that stands is seen again.
    let mut configs = certified(Some(&revoked));
    trusting(&mut configs, None);
    let pair = admission(&configs).unwrap();
    let connection = pair.told.iter().find_map(|(told, event)| match event {
        Event::Connected { connection, .. } if *told == "far" => Some(*connection),
        _ => None,
    });
    assert!(pair.far.is_trusted(connection.unwrap()));
    trusting(&mut configs, Some(&list));
    pair.far.trust(Vec::new(), configs[1].certificates.clone());
    assert!(!pair.far.is_trusted(connection.unwrap()));
}

/// A client that shows `chain`, its own certificate first, whose key is `key`, to a far side that trusts `root` and has its lists of who is
/// `revoked`.
fn chained(
    root: &Authority,
    revoked: Option<&str>,
    chain: &[String],
    key: &KeyPair,
) -> Result<Pair, String> {
    let shown = Certificates::new(chain.concat().as_bytes(), key.serialize_pem().as_bytes());
    let mut configs = certified(None);
    configs[0].certificates = Some(shown.unwrap());
    let own = configs[1].certificates.take().unwrap();
    let own = own.with_authorities(root.0.pem().as_bytes(), revoked.map(str::as_bytes));
    configs[1].certificates = Some(own.unwrap());
    configs[1].peers = Vec::new();
    admission(&configs)
}

/// What stands between a client and its authority is as RFC 5280 has it, or the client is a stranger.
#[test]
fn chains_lead_to_an_authority_or_nowhere() {
    let root = Authority::new();
    let below = |issuer: &Authority, number: usize, change: fn(&mut CertificateParams)| {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        let name = format!("authority {number}");
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        change(&mut params);
        let key = KeyPair::generate().unwrap();
        Authority(CertifiedIssuer::signed_by(params, key, &issuer.0).unwrap())
    };
    let usual: fn(&mut CertificateParams) = |_| {};
    let no_authority: fn(&mut CertificateParams) = |params| params.is_ca = IsCa::NoCa;
    let past: fn(&mut CertificateParams) = |params| params.not_after = date_time_ymd(2025, 1, 1);
    let last: fn(&mut CertificateParams) =
        |params| params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    // Who comes after whom, each below the one before, and what is refused of it.
    for (what, changes, said) in [
        ("one between", vec![usual], None),
        ("five between", vec![usual; 5], None),
        ("too many between", vec![usual; 30], Some("")),
        ("no authority", vec![no_authority], Some("")),
        ("one whose time is over", vec![past], Some("expired")),
        (
            "one below whom there is no other",
            vec![last, usual],
            Some(""),
        ),
    ] {
        let mut between: Vec<Authority> = Vec::new();
        for (number, change) in changes.into_iter().enumerate() {
            let issuer = between.last().unwrap_or(&root);
            let next = below(issuer, number, change);
            between.push(next);
        }
        let client = between.last().unwrap().signs(|_| {});
        let mut chain = vec![client.certificate.pem()];
        chain.extend(between.iter().rev().map(|it| it.0.pem()));
        match (chained(&root, None, &chain, &client.key), said) {
            (Ok(_), None) => {}
            (Err(words), Some(said)) => assert!(
                words.contains("is not trusted") && words.contains(said),
                "{what}: {words}"
            ),
            (other, _) => panic!("{what}: {:?}", other.err()),
        }
        // The last of them is missing.
        if said.is_none() {
            chain.pop();
            let words = chained(&root, None, &chain, &client.key).err().unwrap();
            assert!(words.contains("is not trusted"), "{what}: {words}");
        }
    }
    // Not yet good, and good for everything but clients, are refused; an authority is no client.
    let early = root.signs(|params| params.not_before = date_time_ymd(2030, 1, 1));
    let code = root.signs(|params| {
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::CodeSigning];
    });
    for client in [early, code] {
        let chain = [client.certificate.pem()];
        assert!(chained(&root, None, &chain, &client.key).is_err());
    }
    let itself = Authority(
        CertifiedIssuer::self_signed(params("client.example"), KeyPair::generate().unwrap())
            .unwrap(),
    );
    assert!(chained(&root, None, &[itself.0.pem()], itself.0.key()).is_err());
    let own = chained(&root, None, &[root.0.pem()], root.0.key())
        .err()
        .unwrap();
    assert!(own.contains("is not trusted"), "{own}");
}

/// Certificates and chains of any length cost their own connection alone, and not much time.
#[test]
#[expect(
    clippy::disallowed_methods,
    reason = "what the machine takes is measured"
)]
fn a_certificate_of_any_length_costs_its_own_connection() {
    let root = Authority::new();
    let long = |names: usize| {
        root.signs(|params| {
            let name = |number| format!("{number:060}.{number:060}.example");
            params.subject_alt_names = { 0..names }
                .map(|number| SanType::DnsName(name(number).try_into().unwrap()))
                .collect();
        })
    };
    // 13 kB and 60 kB are carried; twice as much is more than TLS takes.
    for (names, chain, is_in) in [(100, 1, true), (450, 1, true), (450, 2, false)] {
        let client = long(names);
        let chain = vec![client.certificate.pem(); chain];
        let admitted = chained(&root, None, &chain, &client.key);
        assert_eq!(admitted.is_ok(), is_in, "{names}: {:?}", admitted.err());
    }
    // Authorities of one name, each of which might be the issuer: looking for the way is bounded.
    let client = Authority::new().signs(|_| {});
    let mut chain = vec![client.certificate.pem()];
    chain.extend((0..120).map(|_| Authority::new().0.pem()));
    let began = std::time::Instant::now();
    assert!(chained(&root, None, &chain, &client.key).is_err());
    let took = began.elapsed();
    assert!(took < Duration::from_secs(5), "{took:?}");
}

/// Lists of who is revoked that are another's, or no longer the newest, let in nobody whom the right one would not.
#[test]
fn lists_of_who_is_revoked_are_their_authoritys() {
    let root = Authority::new();
    let serial = SerialNumber::from(7);
    let number = serial.clone();
    let revoked = root.signs(move |params| params.serial_number = Some(number));
    let good = root.signs(|_| {});
    let admit = |client: &Made, list: &str| {
        let chain = [client.certificate.pem()];
        chained(&root, Some(list), &chain, &client.key)
    };
    // Its time is over: who is in it stays revoked, and who is not is let in.
    let old = root.list(&serial, 2025);
    assert!(admit(&revoked, &old).is_err());
    assert!(admit(&good, &old).is_ok());
    // One that another of the same name has signed speaks for nobody: without the right one nobody is let in.
    let forged = Authority::new().revokes(&SerialNumber::from(8));
    for client in [&revoked, &good] {
        assert!(admit(client, &forged).is_err());
    }
    // Where both are there, the revoked stay out.
    let both = [forged, root.revokes(&serial)].concat();
    assert!(admit(&revoked, &both).is_err());
    // Whose issuer stands between has no list here.
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params
        .distinguished_name
        .push(DnType::CommonName, "between");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let between = CertifiedIssuer::signed_by(params, KeyPair::generate().unwrap(), &root.0);
    let between = Authority(between.unwrap());
    let client = between.signs(|_| {});
    let chain = [client.certificate.pem(), between.0.pem()];
    let list = root.revokes(&serial);
    let words = chained(&root, Some(&list), &chain, &client.key)
        .err()
        .unwrap();
    assert!(words.contains("is not trusted"), "{words}");
    let lists = [list, between.revokes(&serial)].concat();
    assert!(chained(&root, Some(&lists), &chain, &client.key).is_ok());
}

/// A host whose clock is set only after it has started judges by the right time from then on.
#[test]
fn the_time_of_day_is_corrected() {
    let root = Authority::new();
    let client = root.signs(|params| {
        params.not_before = date_time_ymd(2025, 1, 1);
        params.not_after = date_time_ymd(2035, 1, 1);
    });
    let mut configs = certified(Some(&client));
    let own = configs[1].certificates.take().unwrap();
    let own = own.with_authorities(root.0.pem().as_bytes(), None);
    configs[1].certificates = Some(own.unwrap());
    configs[1].peers = Vec::new();
    configs[1].time_of_day = Duration::ZERO;
    let mut pair = Pair::new(&geo(10, 0.0), &configs, 1);
    pair.connect();
    pair.run_until(at(5000), |pair| lost(pair, "far").is_some());
    let words = lost(&pair, "far").unwrap();
    assert!(words.contains("not valid yet"), "{words}");
    pair.far.set_time_of_day(TODAY, pair.now);
    pair.connect();
    let until = pair.now + Duration::from_secs(5);
    pair.run_until(until, |pair| connected(pair, "far"));
    assert!(connected(&pair, "far"));
    let connection = pair.told.iter().find_map(|(told, event)| match event {
        Event::Connected { connection, .. } if *told == "far" => Some(*connection),
        _ => None,
    });
    assert!(pair.far.is_trusted(connection.unwrap()));
    // Half a century later.
    pair.far.set_time_of_day(TODAY * 2, pair.now);
    assert!(!pair.far.is_trusted(connection.unwrap()));
}
