#include "cli/show/access_report.h"

#include <absl/strings/ascii.h>
#include <google/protobuf/util/time_util.h>

#include "cli/show/names.h"
#include "common/sha256.h"

namespace ringmaster::cli {
namespace {

using google::protobuf::Timestamp;
using google::protobuf::util::TimeUtil;

constexpr char kRolePrefix[] = "ROLE_";

std::string OrDash(const std::string& text) { return text.empty() ? "-" : Printable(text); }

Json UnixMs(bool known, const Timestamp& time) {
  return Known(known, TimeUtil::TimestampToMilliseconds(time));
}

Json OfToken(const v1::Token& token) {
  return {{"id", token.id()},
          {"role", RoleName(token.role())},
          {"name", Known(!token.name().empty(), token.name())},
          {"uses_left", token.uses_left()},
          {"expires_unix_ms", UnixMs(token.has_expires(), token.expires())},
          {"created_unix_ms", UnixMs(token.has_created(), token.created())},
          {"created_by", token.created_by()}};
}

Json OfIdentity(const v1::Identity& identity) {
  return {
      {"name", identity.name()},
      {"role", RoleName(identity.role())},
      {"uri", identity.uri()},
      {"joined_unix_ms", UnixMs(identity.has_joined(), identity.joined())},
      {"certificate_expires_unix_ms",
       UnixMs(identity.has_certificate_expires(), identity.certificate_expires())},
      {"revoked_unix_ms", UnixMs(identity.has_revoked(), identity.revoked())},
  };
}

Json OfAuthority(const v1::CertificateAuthority& authority) {
  return {{"id", authority.id()},
          {"signs", authority.signs()},
          {"signs_from_unix_ms", UnixMs(authority.has_signs_from(), authority.signs_from())},
          {"trusted_until_unix_ms", UnixMs(true, authority.trusted_until())}};
}

Json OfEntry(const v1::AuditEntry& entry) {
  const std::string& previous = entry.previous();
  const auto* const bytes = reinterpret_cast<const uint8_t*>(previous.data());
  return {{"number", entry.number()},
          {"unix_ms", UnixMs(entry.has_at(), entry.at())},
          {"who", entry.who()},
          {"what", entry.what()},
          {"subject", entry.subject()},
          {"result", entry.result()},
          {"previous_sha256", Known(!previous.empty(), Hex({bytes, previous.size()}))}};
}

template <typename Items, typename Of>
Json EachOf(const Items& items, Of of) {
  Json list = Json::array();
  for (const auto& item : items) list.push_back(of(item));
  return list;
}

}  // namespace

std::string RenderTokens(const v1::ListTokensResponse& tokens, const Terminal& terminal) {
  Table table({"TOKEN", "ROLE", "NAME", "USES", "EXPIRES", "CREATED BY"});
  for (const v1::Token& token : tokens.tokens()) {
    table.Add({Printable(token.id()), RoleName(token.role()), OrDash(token.name()),
               fmt::format("{}", token.uses_left()), DateAndTime(token.expires()),
               Printable(token.created_by())});
  }
  return table.Print(terminal);
}

std::string RenderIdentities(const v1::ListIdentitiesResponse& identities,
                             const Terminal& terminal) {
  Table table({"NAME", "ROLE", "JOINED", "CERTIFICATE UNTIL", "REVOKED"});
  for (const v1::Identity& identity : identities.identities()) {
    const bool revoked = identity.has_revoked();
    table.Add({Printable(identity.name()),
               RoleName(identity.role()),
               DateAndTime(identity.joined()),
               DateAndTime(identity.certificate_expires()),
               {revoked ? DateAndTime(identity.revoked()) : "-",
                revoked ? Colour::kRed : Colour::kPlain}});
  }
  return table.Print(terminal);
}

std::string RenderAuthorities(const v1::ListAuthoritiesResponse& authorities,
                              const Terminal& terminal) {
  Table table({"AUTHORITY", "SIGNS", "TRUSTED UNTIL"});
  for (const v1::CertificateAuthority& one : authorities.authorities()) {
    const std::string signs = one.signs()            ? "now"
                              : one.has_signs_from() ? "from " + DateAndTime(one.signs_from())
                                                     : "no more";
    table.Add({Printable(one.id()), signs, DateAndTime(one.trusted_until())});
  }
  return table.Print(terminal);
}

std::string RenderAudit(const v1::ListAuditResponse& audit, const Terminal& terminal) {
  Table table({"NUMBER", "TIME", "WHO", "WHAT", "SUBJECT", "RESULT"});
  for (const v1::AuditEntry& entry : audit.entries()) {
    table.Add(
        {fmt::format("{}", entry.number()),
         DateAndTime(entry.at()),
         Printable(entry.who()),
         Printable(entry.what()),
         OrDash(entry.subject()),
         {Printable(entry.result()), entry.result() == "ok" ? Colour::kPlain : Colour::kYellow}});
  }
  return table.Print(terminal);
}

std::string RenderWhoAmI(const v1::WhoAmIResponse& who) {
  const auto line = [](const std::string& key, const std::string& value) {
    return fmt::format("{:<20} {}\n", key + ":", value);
  };
  std::string text;
  if (!who.identity().empty()) text += line("identity", Printable(who.identity()));
  if (!who.local().empty()) text += line("local", Printable(who.local()));
  text += line("role", RoleName(who.role()));
  if (who.has_certificate_expires()) {
    text += line("certificate until", DateAndTime(who.certificate_expires()));
  }
  return text;
}

Json ToJson(const v1::CreateTokenResponse& created) {
  Json json = {{"token", created.token()}};
  json.update(OfToken(created.about()));
  return json;
}

Json ToJson(const v1::ListTokensResponse& tokens) {
  return {{"tokens", EachOf(tokens.tokens(), OfToken)}};
}

Json ToJson(const v1::ListIdentitiesResponse& identities) {
  return {{"identities", EachOf(identities.identities(), OfIdentity)}};
}

Json ToJson(const v1::ListAuthoritiesResponse& authorities) {
  return {{"authorities", EachOf(authorities.authorities(), OfAuthority)}};
}

Json ToJson(const v1::ListAuditResponse& audit) {
  return {{"entries", EachOf(audit.entries(), OfEntry)}};
}

Json ToJson(const v1::WhoAmIResponse& who) {
  return {{"identity", Known(!who.identity().empty(), who.identity())},
          {"local", Known(!who.local().empty(), who.local())},
          {"role", RoleName(who.role())},
          {"certificate_expires_unix_ms",
           UnixMs(who.has_certificate_expires(), who.certificate_expires())}};
}

std::string RoleName(v1::Role role) {
  if (role == v1::ROLE_UNSPECIFIED || !v1::Role_IsValid(role)) return "unknown";
  return absl::AsciiStrToLower(v1::Role_Name(role).substr(sizeof(kRolePrefix) - 1));
}

v1::Role RoleNamed(const std::string& name) {
  v1::Role role = v1::ROLE_UNSPECIFIED;
  (void)v1::Role_Parse(kRolePrefix + absl::AsciiStrToUpper(name), &role);
  return role;
}

std::string DateAndTime(const Timestamp& time) {
  return DateAndTime(TimeUtil::TimestampToMilliseconds(time));
}

}  // namespace ringmaster::cli
