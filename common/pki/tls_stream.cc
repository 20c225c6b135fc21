#include "common/pki/tls_stream.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <utility>

#include "common/check.h"
#include "common/net/socket.h"
#include "common/pki/openssl.h"

namespace ringmaster::pki {
namespace {

using OwnedContext = Owned<SSL_CTX, SSL_CTX_free>;
using OwnedSsl = Owned<SSL, SSL_free>;
using OwnedMethod = Owned<BIO_METHOD, BIO_meth_free>;

constexpr size_t kLengthBytes = 4;

// OpenSSL's own socket BIO writes with write(2), which raises SIGPIPE when the peer is gone.
int SendTo(BIO* bio, const char* bytes, int size) {
  BIO_clear_retry_flags(bio);
  const int socket = static_cast<const OwnedFile*>(BIO_get_data(bio))->get();
  const ssize_t sent = send(socket, bytes, static_cast<size_t>(size), MSG_NOSIGNAL | MSG_DONTWAIT);
  if (sent < 0 && (errno == EAGAIN || errno == EINTR)) BIO_set_retry_write(bio);
  return static_cast<int>(sent);
}

int ReceiveFrom(BIO* bio, char* bytes, int size) {
  BIO_clear_retry_flags(bio);
  const int socket = static_cast<const OwnedFile*>(BIO_get_data(bio))->get();
  const ssize_t got = recv(socket, bytes, static_cast<size_t>(size), MSG_DONTWAIT);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) BIO_set_retry_read(bio);
  return static_cast<int>(got);
}

long ControlSocket(BIO* /*bio*/, int command, long /*number*/, void* /*pointer*/) {
  return command == BIO_CTRL_FLUSH ? 1 : 0;
}

// `socket` has to stay where it is.
BIO* BioOf(OwnedFile* socket) {
  static const OwnedMethod* const method = []() {
    auto* const made = new OwnedMethod(BIO_meth_new(BIO_TYPE_SOCKET, "socket without SIGPIPE"));
    RING_CHECK(made->get() != nullptr, "out of memory");
    BIO_meth_set_write(made->get(), SendTo);
    BIO_meth_set_read(made->get(), ReceiveFrom);
    BIO_meth_set_ctrl(made->get(), ControlSocket);
    return made;
  }();
  BIO* const bio = BIO_new(method->get());
  if (bio == nullptr) return nullptr;
  BIO_set_data(bio, socket);
  BIO_set_init(bio, 1);
  return bio;
}

bool Show(SSL* ssl, const Credentials& credentials) {
  bool good = SSL_use_certificate(ssl, credentials.certificate.get()) == 1 &&
              SSL_use_PrivateKey(ssl, credentials.key.get()) == 1 &&
              SSL_clear_chain_certs(ssl) == 1;
  for (const Certificate& one : credentials.authorities) {
    good = good && SSL_add1_chain_cert(ssl, one.get()) == 1;
  }
  return good;
}

// The name by which a client asks for an authority's certificate (RFC 6066, 3): no host's.
std::string NameOf(const Sha256Digest& authority) { return ShortHash(authority) + ".ringmaster"; }

// OpenSSL asks for what to show, with the client's wish.
int ShowWhatIsAskedFor(SSL* ssl, int* /*alert*/, void* own) {
  const char* const name = SSL_get_servername(ssl, TLSEXT_NAMETYPE_host_name);
  const std::string asked = name == nullptr ? "" : name;
  for (const Credentials& one : *static_cast<const std::vector<Credentials>*>(own)) {
    if (one.authorities.empty() || NameOf(one.authorities.front().KeyHash()) != asked) continue;
    return Show(ssl, one) ? SSL_TLSEXT_ERR_OK : SSL_TLSEXT_ERR_ALERT_FATAL;
  }
  return SSL_TLSEXT_ERR_OK;  // the first is shown
}

}  // namespace

struct TlsStream::Tls {
  OwnedContext context;
  OwnedSsl ssl;
};

TlsStream::TlsStream(OwnedFile socket, std::unique_ptr<Tls> tls, Deadline deadline)
    : socket_(std::move(socket)), tls_(std::move(tls)), deadline_(deadline) {}

TlsStream::~TlsStream() = default;

StatusOr<std::unique_ptr<TlsStream>> TlsStream::Make(OwnedFile socket,
                                                     const std::vector<Credentials>* own,
                                                     Deadline deadline) {
  auto tls = std::make_unique<Tls>();
  tls->context.reset(SSL_CTX_new(own == nullptr ? TLS_client_method() : TLS_server_method()));
  SSL_CTX* const context = tls->context.get();
  const bool good = context != nullptr &&
                    SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION) == 1 &&
                    SSL_CTX_set_num_tickets(context, 0) == 1;
  if (good) tls->ssl.reset(SSL_new(context));
  if (tls->ssl == nullptr || (own != nullptr && !Show(tls->ssl.get(), own->front()))) {
    return OpensslError(absl::StatusCode::kInternal, "cannot set up TLS");
  }
  std::unique_ptr<TlsStream> stream(new TlsStream(std::move(socket), std::move(tls), deadline));
  BIO* const bio = BioOf(&stream->socket_);
  if (bio == nullptr) return OpensslError(absl::StatusCode::kInternal, "cannot set up TLS");
  SSL_set_bio(stream->tls_->ssl.get(), bio, bio);
  return stream;
}

StatusOr<std::unique_ptr<TlsStream>> TlsStream::Accept(OwnedFile socket,
                                                       const std::vector<Credentials>& credentials,
                                                       Deadline deadline) {
  RING_CHECK(!credentials.empty(), "a server has something to show");
  RING_ASSIGN_OR_RETURN(auto stream, Make(std::move(socket), &credentials, deadline));
  SSL_CTX* const context = stream->tls_->context.get();
  SSL_CTX_set_tlsext_servername_callback(context, ShowWhatIsAskedFor);
  SSL_CTX_set_tlsext_servername_arg(context, const_cast<std::vector<Credentials>*>(&credentials));
  RING_RETURN_IF_ERROR(
      stream->Complete("the TLS handshake", [](SSL* ssl) { return SSL_accept(ssl); }));
  return stream;
}

StatusOr<std::unique_ptr<TlsStream>> TlsStream::Connect(OwnedFile socket,
                                                        const Sha256Digest& authority,
                                                        Deadline deadline) {
  RING_ASSIGN_OR_RETURN(auto stream, Make(std::move(socket), nullptr, deadline));
  if (SSL_set_tlsext_host_name(stream->tls_->ssl.get(), NameOf(authority).c_str()) != 1) {
    return OpensslError(absl::StatusCode::kInternal, "cannot set up TLS");
  }
  // What it shows is judged behind the handshake, by its hash.
  SSL_set_verify(stream->tls_->ssl.get(), SSL_VERIFY_NONE, nullptr);
  RING_RETURN_IF_ERROR(
      stream->Complete("the TLS handshake", [](SSL* ssl) { return SSL_connect(ssl); }));
  return stream;
}

template <typename Call>
Status TlsStream::Complete(const char* what, Call call) {
  SSL* const ssl = tls_->ssl.get();
  while (true) {
    ERR_clear_error();
    errno = 0;
    const int result = call(ssl);
    if (result == 1) return absl::OkStatus();
    const int error = SSL_get_error(ssl, result);
    if (error == SSL_ERROR_SSL) return OpensslError(absl::StatusCode::kUnavailable, what);
    if (error != SSL_ERROR_WANT_READ && error != SSL_ERROR_WANT_WRITE) {
      ERR_clear_error();
      return Error(absl::StatusCode::kUnavailable, "{}: the connection ended", what);
    }
    const short events = error == SSL_ERROR_WANT_READ ? POLLIN : POLLOUT;
    RING_RETURN_IF_ERROR(AwaitSocket(socket_.get(), events, deadline_, what));
  }
}

std::vector<Certificate> TlsStream::PeerChain() const {
  std::vector<Certificate> chain;
  const STACK_OF(X509)* const shown = SSL_get_peer_cert_chain(tls_->ssl.get());
  for (int i = 0; i < sk_X509_num(shown); ++i) {  // a server's chain begins with its own
    X509* const one = sk_X509_value(shown, i);
    X509_up_ref(one);
    chain.push_back(Certificate::Own(one));
  }
  return chain;
}

Status TlsStream::Write(const std::string& message) {
  if (message.size() > kMaxMessageBytes) {
    return InvalidArgument("a message of {} bytes; at most {}", message.size(), kMaxMessageBytes);
  }
  std::string framed(kLengthBytes, '\0');
  framed.reserve(kLengthBytes + message.size());  // no copy of a secret is left behind
  for (size_t i = 0; i < kLengthBytes; ++i) {
    framed[i] = static_cast<char>(message.size() >> (8 * (kLengthBytes - 1 - i)));
  }
  framed += message;
  const Status status = Complete("sending", [&framed](SSL* ssl) {
    size_t written = 0;  // all of it, or none yet
    return SSL_write_ex(ssl, framed.data(), framed.size(), &written);
  });
  Wipe(&framed);
  return status;
}

Status TlsStream::ReadAll(char* bytes, size_t size) {
  size_t done = 0;
  while (done < size) {
    size_t got = 0;
    RING_RETURN_IF_ERROR(Complete(
        "receiving", [&](SSL* ssl) { return SSL_read_ex(ssl, bytes + done, size - done, &got); }));
    done += got;
  }
  return absl::OkStatus();
}

StatusOr<Secret> TlsStream::Read() {
  std::array<char, kLengthBytes> length = {};
  RING_RETURN_IF_ERROR(ReadAll(length.data(), length.size()));
  size_t size = 0;
  for (const char byte : length) size = size << 8 | static_cast<uint8_t>(byte);
  if (size > kMaxMessageBytes) {
    return InvalidArgument("a message of {} bytes; at most {}", size, kMaxMessageBytes);
  }
  std::string message(size, '\0');
  const Status status = ReadAll(message.data(), size);
  Secret secret(std::move(message));
  if (!status.ok()) return status;
  return secret;
}

void TlsStream::Close() {
  (void)SSL_shutdown(tls_->ssl.get());
  ERR_clear_error();
  (void)shutdown(socket_.get(), SHUT_WR);
}

}  // namespace ringmaster::pki
