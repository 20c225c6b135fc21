#include "common/rpc/credentials.h"

#include <grpc/grpc_security_constants.h>
#include <grpcpp/security/tls_certificate_provider.h>
#include <grpcpp/security/tls_certificate_verifier.h>
#include <grpcpp/security/tls_credentials_options.h>
#include <openssl/bio.h>
#include <openssl/conf.h>
#include <openssl/crypto.h>
#include <openssl/ssl.h>

#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "common/mutex.h"
#include "common/pki/certificate.h"
#include "common/pki/credential_folder.h"

namespace ringmaster {
namespace {

// `Protocol` sets an option, which gRPC leaves alone; `MinProtocol`, which is for everybody else,
// it overwrites.
constexpr char kOpensslSettings[] =
    "openssl_conf = ringmaster\n"
    "[ringmaster]\n"
    "ssl_conf = modules\n"
    "[modules]\n"
    "system_default = tls\n"
    "[tls]\n"
    "Ciphersuites = TLS_AES_128_GCM_SHA256\n"
    "MinProtocol = TLSv1.3\n"
    "Protocol = -TLSv1.2\n";
constexpr unsigned kWatchSeconds = 1;

bool IsTls13Alone() {
  SSL_CTX* const context = SSL_CTX_new(TLS_method());
  if (context == nullptr) return false;
  const bool alone = (SSL_CTX_get_options(context) & SSL_OP_NO_TLSv1_2) != 0;
  SSL_CTX_free(context);
  return alone;
}

// The one watch of a folder. It has a thread of gRPC's, as long as anybody uses it.
std::shared_ptr<grpc::experimental::FileWatcherCertificateProvider> WatchOf(
    const std::string& folder) {
  using Watch = grpc::experimental::FileWatcherCertificateProvider;
  static Mutex& mutex = *new Mutex;
  static auto& watches = *new std::map<std::string, std::weak_ptr<Watch>>;
  const MutexLock lock(mutex);
  std::weak_ptr<Watch>& known = watches[folder];
  std::shared_ptr<Watch> watch = known.lock();
  if (watch == nullptr) {
    watch =
        std::make_shared<Watch>(folder + "/" + pki::kKeyFile, folder + "/" + pki::kCertificateFile,
                                folder + "/" + pki::kAuthoritiesFile, kWatchSeconds);
    known = watch;
  }
  return watch;
}

// Asked behind the handshake, in which gRPC has checked signatures and times.
class PeerVerifier : public grpc::experimental::ExternalCertificateVerifier {
 public:
  using Check = std::function<Status(const pki::Identity&)>;
  explicit PeerVerifier(Check check) : check_(std::move(check)) {}

  bool Verify(grpc::experimental::TlsCustomVerificationCheckRequest* request,
              std::function<void(grpc::Status)> /*later*/, grpc::Status* now) override {
    const grpc::string_ref pem = request->peer_cert();
    const Status status = CheckPeer({pem.data(), pem.size()});
    *now = status.ok() ? grpc::Status::OK
                       : grpc::Status(grpc::StatusCode::UNAUTHENTICATED, Message(status));
    return true;
  }
  void Cancel(grpc::experimental::TlsCustomVerificationCheckRequest* /*request*/) override {}

 private:
  [[nodiscard]] Status CheckPeer(const std::string& pem) const {
    RING_ASSIGN_OR_RETURN(const auto certificates, pki::CertificatesFromPem(pem));
    RING_ASSIGN_OR_RETURN(const pki::Identity identity, pki::IdentityOf(certificates.front()));
    return check_(identity);
  }
  const Check check_;
};

void SetUp(const std::string& folder, PeerVerifier::Check check,
           grpc::experimental::TlsCredentialsOptions* options) {
  using grpc::experimental::ExternalCertificateVerifier;
  options->set_certificate_provider(WatchOf(folder));
  options->watch_identity_key_cert_pairs();
  options->watch_root_certs();
  options->set_check_call_host(false);
  options->set_certificate_verifier(
      ExternalCertificateVerifier::Create<PeerVerifier>(std::move(check)));
}

Status CheckCluster(const pki::Identity& peer, const std::string& cluster) {
  if (peer.cluster == cluster) return absl::OkStatus();
  return Error(absl::StatusCode::kUnauthenticated, "the peer is {}, of another cluster than {}",
               ToUri(peer), cluster);
}

Status CheckExpected(const pki::Identity& peer, const ExpectedPeer& expected) {
  const bool any = expected.name.empty();
  if (peer.kind == expected.kind && (any || peer.name == expected.name)) return absl::OkStatus();
  return Error(absl::StatusCode::kUnauthenticated,
               "the peer is {}; expected {} {}: does its address lead to another host?",
               ToUri(peer), NameOf(expected.kind), any ? "of any name" : expected.name);
}

}  // namespace

// No file is read, neither these settings nor the host's.
Status UseTls13() {
  const std::unique_ptr<CONF, decltype(&NCONF_free)> settings(NCONF_new(nullptr), &NCONF_free);
  const std::unique_ptr<BIO, decltype(&BIO_free)> text(BIO_new_mem_buf(kOpensslSettings, -1),
                                                       &BIO_free);
  const bool done = settings != nullptr && text != nullptr &&
                    OPENSSL_init_ssl(OPENSSL_INIT_NO_LOAD_CONFIG, nullptr) == 1 &&
                    NCONF_load_bio(settings.get(), text.get(), nullptr) == 1;
  if (done) OPENSSL_load_builtin_modules();
  if (!done || CONF_modules_load(settings.get(), "openssl_conf", 0) <= 0 || !IsTls13Alone()) {
    return Internal("TLS 1.2 cannot be switched off: OpenSSL has other settings already");
  }
  return absl::OkStatus();
}

StatusOr<std::shared_ptr<grpc::ServerCredentials>> ServerTls(const std::string& folder) {
  RING_ASSIGN_OR_RETURN(const pki::Credentials own, pki::LoadCredentials(folder));
  grpc::experimental::TlsServerCredentialsOptions options(WatchOf(folder));
  SetUp(
      folder,
      [cluster = own.identity.cluster](const pki::Identity& peer) {
        return CheckCluster(peer, cluster);
      },
      &options);
  // Without it the peer is not even asked for a certificate.
  options.set_cert_request_type(GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  return grpc::experimental::TlsServerCredentials(options);
}

StatusOr<std::shared_ptr<grpc::ChannelCredentials>> ChannelTls(const std::string& folder,
                                                               const ExpectedPeer& expected) {
  RING_ASSIGN_OR_RETURN(const pki::Credentials own, pki::LoadCredentials(folder));
  grpc::experimental::TlsChannelCredentialsOptions options;
  SetUp(
      folder,
      [cluster = own.identity.cluster, expected](const pki::Identity& peer) {
        RING_RETURN_IF_ERROR(CheckCluster(peer, cluster));
        return CheckExpected(peer, expected);
      },
      &options);
  return grpc::experimental::TlsCredentials(options);
}

void SetServerName(pki::Kind kind, grpc::ChannelArguments* arguments) {
  arguments->SetSslTargetNameOverride(pki::ServerName(kind));
}

StatusOr<std::optional<pki::Identity>> PeerIdentity(const grpc::AuthContext& context) {
  const auto values = [&context](const char* name) { return context.FindPropertyValues(name); };
  const auto transports = values(GRPC_TRANSPORT_SECURITY_TYPE_PROPERTY_NAME);
  if (transports.empty()) return std::optional<pki::Identity>();  // within this process
  for (const char* const open : {"insecure", "local"}) {
    if (transports.size() == 1 && transports.front() == open) {
      return std::optional<pki::Identity>();
    }
  }
  const auto uris = values(GRPC_PEER_URI_PROPERTY_NAME);
  const auto identities = values(GRPC_PEER_SPIFFE_ID_PROPERTY_NAME);
  if (uris.size() != 1 || identities.size() != 1 || uris.front() != identities.front()) {
    return Error(absl::StatusCode::kUnauthenticated,
                 "the peer's certificate names {} URIs; expected one identity", uris.size());
  }
  const auto identity = pki::ParseIdentity({identities.front().data(), identities.front().size()});
  if (!identity.ok()) {
    return Error(absl::StatusCode::kUnauthenticated, "the peer's {}", Message(identity.status()));
  }
  return std::optional<pki::Identity>(*identity);
}

StatusOr<pki::Certificate> PeerLeaf(const grpc::AuthContext& context) {
  const auto pem = context.FindPropertyValues(GRPC_X509_PEM_CERT_PROPERTY_NAME);
  if (pem.size() == 1) {
    const auto found = pki::CertificatesFromPem({pem.front().data(), pem.front().size()});
    if (found.ok()) return found->front();
  }
  return Error(absl::StatusCode::kUnauthenticated, "the peer has no certificate");
}

}  // namespace ringmaster
