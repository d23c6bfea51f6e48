//! The programs: what serves, and what asks and judges. Both are lines of sh(1) in the folder `$W`, which
//! has the file `data` and the folder `tree`; `$S` and `$S6` are the server's addresses.

/// A program, and what it talks to.
#[derive(Clone)]
pub(crate) struct Row {
    pub(crate) name: &'static str,
    /// Programs that must be there, and Python's modules as `python3:MODULE`.
    pub(crate) needs: &'static [&'static str],
    /// Runs in the server's namespace, in the foreground; ended when the client has.
    pub(crate) server: &'static str,
    /// Where it listens when it is ready.
    pub(crate) port: u16,
    /// Runs in the client's namespace; its exit code judges.
    pub(crate) client: &'static str,
}

const fn row(
    name: &'static str,
    needs: &'static [&'static str],
    (port, server): (u16, &'static str),
    client: &'static str,
) -> Row {
    Row {
        name,
        needs,
        server,
        port,
        client,
    }
}

/// Servers by port and script; they write their configuration themselves.
const NGINX: (u16, &str) = (
    8080,
    r#"mkdir -p n; cat > nginx.conf <<END
daemon off; master_process off; pid $W/nginx.pid; error_log stderr; events {}
http { access_log off; client_body_temp_path n; proxy_temp_path n; fastcgi_temp_path n;
 uwsgi_temp_path n; scgi_temp_path n;
 server { listen 8080 fastopen=16; listen [::]:8080; root $W; } }
END
exec nginx -p $W -c $W/nginx.conf -e stderr"#,
);

const NGINX_TLS: (u16, &str) = (
    8443,
    r#"mkdir -p n; openssl req -x509 -newkey rsa:2048 -nodes -keyout k.pem -out c.pem -days 1 -subj /CN=server 2>/dev/null
cat > nginx.conf <<END
daemon off; master_process off; pid $W/nginx.pid; error_log stderr; events {}
http { access_log off; client_body_temp_path n; proxy_temp_path n; fastcgi_temp_path n;
 uwsgi_temp_path n; scgi_temp_path n;
 server { listen 8443 ssl http2; ssl_certificate $W/c.pem; ssl_certificate_key $W/k.pem; root $W; } }
END
exec nginx -p $W -c $W/nginx.conf -e stderr"#,
);

const NGHTTPD: (u16, &str) = (8081, "exec nghttpd --no-tls -d $W 8081");

const SSHD: (u16, &str) = (
    2222,
    r#"mkdir -p /run/sshd; [ -f host ] || { ssh-keygen -q -t ed25519 -N '' -f host; ssh-keygen -q -t ed25519 -N '' -f user; }
exec $(PATH=$PATH:/usr/sbin command -v sshd) -D -e -f /dev/null -o Port=2222 -o HostKey=$W/host \
 -o AuthorizedKeysFile=$W/user.pub -o PidFile=none -o PermitRootLogin=yes -o StrictModes=no -o UsePAM=no \
 -o Subsystem='sftp internal-sftp'"#,
);

/// For scp, sftp, ssh and what runs over it.
const SSH: &str = "-F /dev/null -o BatchMode=yes -o StrictHostKeyChecking=no \
 -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR -i $W/user";

const VSFTPD: (u16, &str) = (
    2121,
    r#"mkdir -p pub empty; cp data pub/; mkdir -p pub/in; chmod 755 $W pub empty; chmod 777 pub/in; cat > ftp.conf <<END
listen=YES
background=NO
listen_port=2121
anonymous_enable=YES
anon_root=$W/pub
anon_upload_enable=YES
write_enable=YES
anon_umask=022
local_enable=NO
no_anon_password=YES
secure_chroot_dir=$W/empty
connect_from_port_20=YES
seccomp_sandbox=NO
END
exec vsftpd ftp.conf"#,
);

const IPERF3: (u16, &str) = (5201, "exec iperf3 --server --forceflush");

const GIT_DAEMON: (u16, &str) = (
    9418,
    r#"[ -d r.git ] || { git init -q --bare r.git; git init -q w; cp -r data tree w/; git -C w add .;
 git -C w -c user.name=a -c user.email=a@b commit -qm one; git -C w push -q ../r.git HEAD:refs/heads/master; }
exec git daemon --reuseaddr --base-path=$W --export-all --enable=receive-pack"#,
);

const RSYNCD: (u16, &str) = (
    8730,
    r#"printf 'use chroot = no\n[w]\npath = %s\n' $W > rsyncd.conf
exec rsync --daemon --no-detach --port 8730 --config rsyncd.conf --log-file /dev/null"#,
);

const REDIS: (u16, &str) = (
    6379,
    "exec redis-server --save '' --protected-mode no --port 6379",
);

const WEBSOCKET: (u16, &str) = (
    8765,
    r#"exec /usr/bin/python3 -c '
import asyncio, websockets
async def echo(socket, path=None):
    async for message in socket: await socket.send(message)
async def main():
    async with websockets.serve(echo, "", 8765, max_size=None): await asyncio.Future()
asyncio.run(main())'"#,
);

const WEBSOCKET_CLIENT: &str = r#"/usr/bin/python3 -c '
import asyncio, os, websockets
async def main():
    data = open("data", "rb").read()
    async with websockets.connect("ws://%s:8765" % os.environ["S"], max_size=None) as socket:
        for message in (b"small", data, b"last"):
            await socket.send(message)
            assert await socket.recv() == message
asyncio.run(main())'"#;

const SMTP: (u16, &str) = (
    2525,
    r#"exec /usr/bin/python3 -c '
import time
from aiosmtpd.controller import Controller
class Keep:
    async def handle_DATA(self, server, session, envelope):
        open("mail", "wb").write(envelope.content); return "250 kept"
Controller(Keep(), hostname="0.0.0.0", port=2525, data_size_limit=2**30).start(); time.sleep(600)'"#,
);

const DNS: (u16, &str) = (
    5353,
    r#"set --; for i in $(seq 300); do set -- "$@" --txt-record=t.example,$i-0123456789012345678901234567890123456789; done
exec dnsmasq --keep-in-foreground --no-resolv --no-hosts --conf-file=/dev/null --user=root --port=5353 "$@""#,
);

/// Makes a repository `$1` with one commit of `data`.
const COMMIT: &str = r#"commit() {
 git init -q $1 && cp data $1 && git -C $1 add . && git -C $1 -c user.name=a -c user.email=a@b commit -qm one
}
"#;

fn leak(text: String) -> &'static str {
    Box::leak(text.into_boxed_str())
}

/// curl fetches the file, whole and right.
fn curl(more: &str) -> &'static str {
    leak(format!("curl -sSf -m 100 -o got {more} && cmp got data"))
}

/// `{SSH}` stands for the options.
fn ssh(text: &str) -> &'static str {
    leak(text.replace("{SSH}", SSH))
}

fn git(text: &str) -> &'static str {
    leak(format!("{COMMIT}{text}"))
}

/// All of them. Each name says what makes it a kind of its own.
pub(crate) fn rows() -> Vec<Row> {
    [web(), files(), others()].concat()
}

fn web() -> Vec<Row> {
    let nginx = |name, needs, client| row(name, needs, NGINX, client);
    let nghttpd = |name, needs, client| row(name, needs, NGHTTPD, client);
    let curl_and = &["nginx", "curl"];
    let again = "rm -f got; timeout -s KILL $t wget -q -t 1 -O got http://$S:8080/data
 wget -q -c -T 60 -t 1 -O got http://$S:8080/data && cmp got data || exit";
    vec![
        nginx(
            "curl, HTTP/1.1 over IPv4",
            curl_and,
            curl("http://$S:8080/data"),
        ),
        nginx(
            "curl, HTTP/1.1 over IPv6",
            curl_and,
            curl("-g http://[$S6]:8080/data"),
        ),
        row(
            "curl, HTTP/2 over TLS",
            &["nginx", "curl", "openssl"],
            NGINX_TLS,
            curl("-k --http2 https://$S:8443/data"),
        ),
        nghttpd(
            "curl, HTTP/2 over IPv4",
            &["nghttpd", "curl"],
            curl("--http2-prior-knowledge http://$S:8081/data"),
        ),
        nghttpd(
            "curl, HTTP/2 over IPv6",
            &["nghttpd", "curl"],
            curl("--http2-prior-knowledge -g http://[$S6]:8081/data"),
        ),
        nghttpd(
            "nghttp, 20 streams at once",
            &["nghttpd", "nghttp"],
            "nghttp -n -m 20 -s http://$S:8081/tree/1 | grep -c ' 200 ' | grep -qx 20",
        ),
        nginx(
            "curl, Fast Open",
            curl_and,
            leak(format!(
                "for i in 1 2 3; do {} || exit; done",
                curl("--tcp-fastopen http://$S:8080/data")
            )),
        ),
        nginx(
            "wget",
            &["nginx", "wget"],
            "wget -q -T 60 -t 1 -O got http://$S:8080/data && cmp got data",
        ),
        nginx(
            "wget -c after a kill",
            &["nginx", "wget"],
            leak(format!("for t in 1.6 1.9 2.2; do {again}; done")),
        ),
        nginx(
            "apt's download",
            &["nginx", "apt-get"],
            "/usr/lib/apt/apt-helper -o APT::Sandbox::User=root download-file http://$S:8080/data got && cmp got data",
        ),
        nginx(
            "ab, keep-alive, 5 at once",
            &["nginx", "ab"],
            "ab -q -k -n 30 -c 5 http://$S:8080/tree/1 > ab.log && grep -q 'Failed requests: *0$' ab.log",
        ),
        row(
            "websocket",
            &["python3:websockets"],
            WEBSOCKET,
            WEBSOCKET_CLIENT,
        ),
    ]
}

fn files() -> Vec<Row> {
    let sshd = |name, needs, client: &str| row(name, needs, SSHD, ssh(client));
    let vsftpd = |name, client| row(name, &["vsftpd", "curl"], VSFTPD, client);
    vec![
        row(
            "git over git://, clone",
            &["git"],
            GIT_DAEMON,
            "git clone -q git://$S/r.git c && cmp c/data data",
        ),
        row(
            "git over git://, push",
            &["git"],
            GIT_DAEMON,
            "git clone -q git://$S/r.git c && cd c && date > d && git add d &&
 git -c user.name=a -c user.email=a@b commit -qm more && git push -q",
        ),
        sshd(
            "git over ssh, push",
            &["git", "ssh", "sshd"],
            git(r#"commit s && git init -q --bare t.git &&
 GIT_SSH_COMMAND="ssh {SSH}" git -C s push -q ssh://root@$S:2222$W/t.git HEAD:refs/heads/b"#),
        ),
        row(
            "git over HTTP, clone",
            &["git", "nginx"],
            NGINX,
            git(
                "commit x && git clone -q --bare x h.git && git -C h.git update-server-info &&
 git clone -q http://$S:8080/h.git h && cmp h/data data",
            ),
        ),
        sshd(
            "ssh, a command and its input",
            &["ssh", "sshd"],
            "ssh {SSH} -p 2222 root@$S 'cat; exit 7' < data > got; [ $? = 7 ] && cmp got data",
        ),
        sshd(
            "scp there and back",
            &["scp", "sshd"],
            "scp -q {SSH} -P 2222 data root@$S:$W/sent &&
 scp -q {SSH} -P 2222 root@$S:$W/sent got && cmp got data",
        ),
        sshd(
            "sftp",
            &["sftp", "sshd"],
            "echo get $W/data got | sftp -q {SSH} -P 2222 root@$S && cmp got data",
        ),
        sshd(
            "rsync over ssh",
            &["rsync", "sshd"],
            r#"rsync -a -e "ssh {SSH} -p 2222" root@$S:$W/tree/ got/ && diff -r tree got"#,
        ),
        row(
            "rsync, its own protocol",
            &["rsync"],
            RSYNCD,
            "rsync -a rsync://$S:8730/w/tree/ got/ && diff -r tree got",
        ),
        vsftpd("FTP, passive by EPSV", curl("ftp://$S:2121/data")),
        vsftpd(
            "FTP, passive by PASV",
            curl("--disable-epsv ftp://$S:2121/data"),
        ),
        vsftpd(
            "FTP, active: the server connects",
            curl("--ftp-port - ftp://$S:2121/data"),
        ),
        vsftpd(
            "FTP, passive, sending",
            "curl -sSf -m 100 -T data ftp://$S:2121/in/new && cmp pub/in/new data",
        ),
    ]
}

fn others() -> Vec<Row> {
    let mut rows = vec![
        row(
            "SMTP",
            &["python3:aiosmtpd", "curl"],
            SMTP,
            "base64 data > mail.txt
 curl -sSf --crlf -m 100 smtp://$S:2525 --mail-from a@b --mail-rcpt c@d --upload-file mail.txt &&
 tr -d '\\r' < mail | cmp - mail.txt",
        ),
        row(
            "DNS over TCP",
            &["dnsmasq", "dig"],
            DNS,
            "dig +tcp +time=20 +tries=1 @$S -p 5353 t.example TXT | grep -c 0123456789 | grep -qx 300",
        ),
        row(
            "redis",
            &["redis-server", "redis-cli"],
            REDIS,
            r#"[ $(redis-cli -h $S ping) = PONG ] && redis-cli -h $S -x set k < data | grep -q OK &&
 redis-cli -h $S strlen k | grep -qx $(stat -c %s data) &&
 seq 1000 | sed 's/.*/INCR n/' | redis-cli -h $S --pipe | grep -q 'errors: 0, replies: 1000'"#,
        ),
    ];
    let modes = [
        ("there", ""),
        ("back", "-R"),
        ("both ways", "--bidir"),
        ("four at once", "-P 4"),
    ];
    rows.extend(modes.map(|(name, more)| {
        let client = format!("iperf3 -c $S -t 3 {more} | grep -q receiver");
        row(
            leak(format!("iperf3, {name}")),
            &["iperf3"],
            IPERF3,
            leak(client),
        )
    }));
    rows
}
