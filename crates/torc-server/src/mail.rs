//! Messages to people by mail: one message, one conversation with a relay.

use crate::notify::NotificationText;
use crate::outgoing_tls;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncWrite, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;

/// Where mail goes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mail {
    to: Vec<String>,
    from: String,
    /// `HOST:PORT`.
    relay: String,
    tls: MailTls,
}

/// How the way to a relay is encrypted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum MailTls {
    /// Not at all.
    No,
    /// After `STARTTLS`; a relay that does not know it gets nothing.
    Upgraded,
    /// From the first byte on.
    FromTheStart,
}

impl Mail {
    /// From `mailto:TO[,TO...]?smtp=[smtps://|starttls://]HOST[:PORT]&from=FROM`.
    pub fn parse(target: &str) -> Result<Self, String> {
        let rest = target.strip_prefix("mailto:").ok_or("mail goes to `mailto:ADDRESS`")?;
        let (to, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (mut relay, mut from) = ("localhost:25".to_owned(), "torc@localhost".to_owned());
        let mut tls = MailTls::No;
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            match pair.split_once('=') {
                Some(("smtp", host)) if !host.is_empty() => {
                    let (scheme, host) = host.split_once("://").unwrap_or(("smtp", host));
                    let port;
                    (tls, port) = match scheme {
                        "smtp" => (MailTls::No, 25),
                        "starttls" => (MailTls::Upgraded, 587),
                        "smtps" => (MailTls::FromTheStart, 465),
                        other => {
                            let known = "`smtps`, `starttls` and `smtp`";
                            return Err(format!(
                                "`{other}` is no way to a relay; known are {known}"
                            ));
                        }
                    };
                    relay = if host.contains(':') { host.into() } else { format!("{host}:{port}") };
                }
                Some(("from", address)) => from = address.to_owned(),
                _ => {
                    return Err(format!("`{pair}` is neither `smtp=HOST:PORT` nor `from=ADDRESS`"));
                }
            }
        }
        let to: Vec<String> = to.split(',').map(|one| one.trim().to_owned()).collect();
        for address in to.iter().chain([&from]) {
            let is_plain = |c: char| c.is_ascii_graphic() && !"<>()[]\\,;:\"".contains(c);
            let is_right = address.chars().all(is_plain)
                && address.split_once('@').is_some_and(|(user, host)| {
                    !user.is_empty() && !host.is_empty() && !host.contains('@')
                });
            if !is_right {
                return Err(format!("`{address}` is not an address such as `me@example.org`"));
            }
        }
        Ok(Self { to, from, relay, tls })
    }

    /// Hands a message to the relay.
    pub async fn send(&self, message: &NotificationText, id: i64) -> Result<(), String> {
        let mut talk = self.connect().await?;
        talk.expect(250, &format!("MAIL FROM:<{}>\r\n", self.from)).await?;
        for to in &self.to {
            talk.expect(250, &format!("RCPT TO:<{to}>\r\n")).await?;
        }
        talk.expect(354, "DATA\r\n").await?;
        talk.expect(250, &self.text(message, id)).await?;
        // It was taken; how the relay says goodbye changes nothing.
        let _ = talk.expect(221, "QUIT\r\n").await;
        Ok(())
    }

    /// A conversation with the relay that is ready for a message.
    async fn connect(&self) -> Result<SmtpTalk, String> {
        let tcp = TcpStream::connect(&self.relay)
            .await
            .map_err(|e| format!("failed to connect to the relay {}: {e}", self.relay))?;
        let stream = match self.tls {
            MailTls::No => SmtpTalk::greeted(Box::new(tcp)).await?,
            MailTls::FromTheStart => SmtpTalk::greeted(self.encrypt(tcp).await?).await?,
            MailTls::Upgraded => {
                let mut plain = SmtpTalk::new(tcp);
                plain.expect(220, "").await?;
                plain.expect(250, "EHLO torc\r\n").await?;
                plain.expect(220, "STARTTLS\r\n").await?;
                // What came behind the answer was not encrypted, so an attacker on the way may have
                // said it: it must not count as said under encryption (command injection).
                if !plain.stream.buffer().is_empty() {
                    return Err("the relay said more than it was asked before encryption".into());
                }
                let mut talk = SmtpTalk::new(self.encrypt(plain.stream.into_inner()).await?);
                talk.expect(250, "EHLO torc\r\n").await?;
                talk
            }
        };
        Ok(stream)
    }

    async fn encrypt(&self, tcp: TcpStream) -> Result<RelayStream, String> {
        let host = self.relay.rsplit_once(':').map_or(&*self.relay, |(host, _)| host);
        let host = host.trim_matches(['[', ']']);
        Ok(Box::new(outgoing_tls::encrypt(tcp, host).await?))
    }

    fn text(&self, message: &NotificationText, id: i64) -> String {
        let whole: String = message.lines().map(|line| format!("{line}\r\n")).collect();
        let encoded_body = STANDARD.encode(whole);
        let lines: Vec<&str> = encoded_body
            .as_bytes()
            .chunks(76)
            .map(|chunk| std::str::from_utf8(chunk).unwrap_or_default())
            .collect();
        format!(
            "From: Torc <{}>\r\nTo: {}\r\nSubject: {}\r\nMessage-ID: <torc-{id}@{}>\r\nMIME-Version: 1.0\r\n\
             Content-Type: text/plain; charset=utf-8\r\nContent-Transfer-Encoding: base64\r\n\
             Auto-Submitted: auto-generated\r\n\r\n{}\r\n.\r\n",
            self.from,
            self.to.join(", "),
            subject(&message.title),
            self.from.split('@').nth(1).unwrap_or("localhost"),
            lines.join("\r\n"),
        )
    }
}

/// A subject in words of at most 75 bytes, as RFC 2047 asks.
fn subject(title: &str) -> String {
    let mut words: Vec<String> = vec![String::new()];
    for c in title.chars() {
        let last = words.last_mut().expect("there is one");
        match last.len() + c.len_utf8() > 42 {
            true => words.push(c.into()),
            false => last.push(c),
        }
    }
    let words: Vec<String> =
        words.iter().map(|word| format!("=?UTF-8?B?{}?=", STANDARD.encode(word))).collect();
    words.join("\r\n ")
}

/// The way to a relay, encrypted or not.
type RelayStream = Box<dyn Duplex>;

trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Duplex for T {}

/// A conversation by SMTP.
struct SmtpTalk<S = RelayStream> {
    stream: BufReader<S>,
}

impl SmtpTalk {
    /// The relay has said who it is, and heard who we are.
    async fn greeted(stream: RelayStream) -> Result<Self, String> {
        let mut talk = Self::new(stream);
        talk.expect(220, "").await?;
        talk.expect(250, "EHLO torc\r\n").await?;
        Ok(talk)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> SmtpTalk<S> {
    fn new(stream: S) -> Self {
        Self { stream: BufReader::new(stream) }
    }
    /// Says something and waits for this answer.
    async fn expect(&mut self, code: u16, say: &str) -> Result<(), String> {
        const LONGEST: usize = 4096;
        let failed = |e: std::io::Error| format!("the relay broke off: {e}");
        self.stream.write_all(say.as_bytes()).await.map_err(failed)?;
        loop {
            let mut line = String::new();
            let mut limited = tokio::io::AsyncReadExt::take(&mut self.stream, LONGEST as u64);
            let read = limited.read_line(&mut line).await.map_err(failed)?;
            if read == 0 {
                return Err("the relay broke off".into());
            }
            if line.as_bytes().get(3) == Some(&b'-') {
                continue;
            }
            return match line.get(..3).and_then(|digits| digits.parse::<u16>().ok()) {
                Some(said) if said == code => Ok(()),
                _ => Err(format!("the relay said: {}", line.trim_end())),
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_mail_are_checked() {
        let mail = Mail::parse("mailto:a@x.org,b@y.org?smtp=relay:2525&from=torc@z.org").unwrap();
        assert_eq!((mail.to.len(), &*mail.relay, &*mail.from), (2, "relay:2525", "torc@z.org"));
        assert_eq!(Mail::parse("mailto:a@x.org?smtp=relay").unwrap().relay, "relay:25");
        let ways = [
            ("smtps://r", "r:465", MailTls::FromTheStart),
            ("starttls://r:25", "r:25", MailTls::Upgraded),
        ];
        for (way, relay, tls) in ways {
            let mail = Mail::parse(&format!("mailto:a@x.org?smtp={way}")).unwrap();
            assert_eq!((&*mail.relay, mail.tls), (relay, tls));
        }
        assert!(Mail::parse("mailto:a@x.org?smtp=tls://r").unwrap_err().contains("starttls"));
        for bad in [
            "a@x.org",
            "mailto:",
            "mailto:a",
            "mailto:a@x\r\nRCPT",
            "mailto:<a@x>",
            "mailto:a@x?cc=b@y",
        ] {
            assert!(Mail::parse(bad).is_err(), "{bad}");
        }
    }
}
