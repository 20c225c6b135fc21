#include "common/pki/identity.h"

#include <openssl/x509v3.h>

#include <array>
#include <vector>

#include "common/ids.h"
#include "common/pki/openssl.h"
#include "common/text.h"

namespace ringmaster::pki {
namespace {

constexpr char kScheme[] = "spiffe://";
constexpr size_t kMaxUriBytes = 2'048;  // the SPIFFE ID standard, 2.3
constexpr std::array kKinds = {Kind::kWorker, Kind::kUser, Kind::kCoordinator};

using OwnedNames = Owned<GENERAL_NAMES, GENERAL_NAMES_free>;

// INVALID_ARGUMENT: the extension is there twice, or cannot be read.
StatusOr<std::vector<std::string>> UrisOf(const Certificate& certificate) {
  int found = 0;  // -1: none; -2: several; 0 or 1: whether it is critical
  const OwnedNames names(static_cast<GENERAL_NAMES*>(
      X509_get_ext_d2i(certificate.get(), NID_subject_alt_name, &found, nullptr)));
  ERR_clear_error();
  std::vector<std::string> uris;
  if (names == nullptr) {
    if (found == -1) return uris;
    return InvalidArgument("its subjectAltName cannot be read");
  }
  for (int i = 0; i < sk_GENERAL_NAME_num(names.get()); ++i) {
    const GENERAL_NAME* const name = sk_GENERAL_NAME_value(names.get(), i);
    if (name->type != GEN_URI) continue;
    const ASN1_IA5STRING* const uri = name->d.uniformResourceIdentifier;
    uris.emplace_back(reinterpret_cast<const char*>(ASN1_STRING_get0_data(uri)),
                      static_cast<size_t>(ASN1_STRING_length(uri)));
  }
  return uris;
}

}  // namespace

const char* NameOf(Kind kind) {
  switch (kind) {
    case Kind::kWorker:
      return "worker";
    case Kind::kUser:
      return "user";
    case Kind::kCoordinator:
      return "coordinator";
  }
  return "?";
}

std::string ServerName(Kind kind) { return std::string(NameOf(kind)) + ".ringmaster"; }

std::string ToUri(const Identity& identity) {
  return fmt::format("{}{}/{}/{}", kScheme, identity.cluster, NameOf(identity.kind), identity.name);
}

StatusOr<Identity> ParseIdentity(const std::string& uri) {
  if (uri.size() > kMaxUriBytes) {
    return InvalidArgument("an identity of {} bytes; at most {}", uri.size(), kMaxUriBytes);
  }
  const auto bad = [&uri](const std::string& why) {
    return InvalidArgument(
        "identity \"{}\": {}; expected {}CLUSTER/{{worker,user,coordinator}}/NAME",
        OneLine(uri, kMaxNameText), why, kScheme);
  };
  if (!uri.starts_with(kScheme)) return bad("another scheme");
  const std::string rest = uri.substr(sizeof(kScheme) - 1);
  const size_t first = rest.find('/');
  const size_t second = first == std::string::npos ? first : rest.find('/', first + 1);
  if (second == std::string::npos) return bad("too few parts");
  Identity identity{.cluster = rest.substr(0, first), .name = rest.substr(second + 1)};
  const std::string kind = rest.substr(first + 1, second - first - 1);
  if (!IsName(identity.cluster)) return bad("the cluster is no name");
  if (!IsName(identity.name)) return bad("the last part is no name");
  for (const Kind one : kKinds) {
    if (kind != NameOf(one)) continue;
    identity.kind = one;
    return identity;
  }
  return bad("no such kind");
}

StatusOr<Identity> IdentityOf(const Certificate& certificate) {
  if (certificate.is_authority()) {
    return InvalidArgument("the certificate is an authority's, nobody's own");
  }
  RING_ASSIGN_OR_RETURN(const std::vector<std::string> uris, UrisOf(certificate));
  if (uris.size() != 1) {
    return InvalidArgument("the certificate names {} URIs; expected one identity", uris.size());
  }
  return ParseIdentity(uris[0]);
}

}  // namespace ringmaster::pki
