#include <algorithm>

#include "cli/client.h"
#include "cli/commands/commands.h"
#include "cli/show/access_report.h"
#include "cli/show/names.h"
#include "common/amount.h"

namespace ringmaster::cli {

// ringctl token create --role R, token ls, token revoke ID: one line that lets somebody in.

namespace {

struct TokenOptions {
  std::string role;
  std::string name;
  std::string ttl = "1h";
  uint32_t uses = 1;
};

constexpr DurationRange kTtl{std::chrono::seconds(1), std::chrono::hours(7 * 24)};

StatusOr<ExitCode> CreateToken(const Common& common, const TokenOptions& options) {
  RING_ASSIGN_OR_RETURN(const std::chrono::milliseconds ttl,
                        ParseDuration(options.ttl, "--ttl", kTtl));
  v1::CreateTokenRequest request;
  request.set_role(RoleNamed(options.role));
  request.set_name(options.name);
  request.set_ttl_seconds(
      static_cast<uint32_t>(std::chrono::ceil<std::chrono::seconds>(ttl).count()));
  request.set_uses(options.uses);
  RING_ASSIGN_OR_RETURN(Client client, Client::Create(common.coordinator));
  RING_ASSIGN_OR_RETURN(const v1::CreateTokenResponse created, client.CreateToken(request));
  Print(common.json() ? ToJson(created).dump(2) + "\n" : created.token() + "\n");
  const v1::Token& about = created.about();
  const bool worker = about.role() == v1::ROLE_WORKER;
  Say(fmt::format("this line is a secret, and is not shown again: {} until {}, {}",
                  worker ? "`ringworker --join` takes it on the worker's host"
                         : fmt::format("`ringctl login` takes it where {} works", about.name()),
                  DateAndTime(about.expires()),
                  about.uses_left() == 1 ? "once" : Count(about.uses_left(), "time")));
  Say(fmt::format("`ringctl token revoke {}` takes it back", about.id()));
  return ExitCode::kOk;
}

StatusOr<ExitCode> ListTokens(const Common& common) {
  RING_ASSIGN_OR_RETURN(Client client, Client::Create(common.coordinator));
  RING_ASSIGN_OR_RETURN(const v1::ListTokensResponse tokens, client.ListTokens());
  Print(common.json() ? ToJson(tokens).dump(2) + "\n" : RenderTokens(tokens, Terminal::Of(stdout)));
  return ExitCode::kOk;
}

StatusOr<ExitCode> RevokeToken(const Common& common, const std::string& id) {
  RING_ASSIGN_OR_RETURN(Client client, Client::Create(common.coordinator));
  RING_RETURN_IF_ERROR(client.RevokeToken(id));
  if (common.json()) Print(Json{{"id", id}}.dump(2) + "\n");
  Say(
      fmt::format("{} lets nobody in any more; who used it is an identity all the same, which "
                  "`ringctl identity revoke` ends",
                  id));
  return ExitCode::kOk;
}

}  // namespace

void AddToken(CommandLine& line) {
  CLI::App* const group = line.AddGroup("token", "let workers and people in, one line each");
  const auto options = std::make_shared<TokenOptions>();
  CLI::App* const create =
      line.Add(group, "create", "print a line that lets a worker or a person join",
               Examples("ringctl token create --role worker --name b",
                        "ringctl token create --role worker --uses 16 --ttl 10m",
                        "ringctl token create --role submitter --name eva"),
               [&line, options] { return CreateToken(line.common(), *options); });
  OneOf(create->add_option("--role", options->role, "what who joins may do")->required(),
        {"viewer", "submitter", "admin", "worker"});
  create
      ->add_option("--name", options->name,
                   "the name of who joins; a worker may choose it itself when this is left out")
      ->type_name("NAME");
  create->add_option("--ttl", options->ttl, "how long it can be used: 90s, 10m; 168h at most")
      ->type_name("DURATION")
      ->default_str(options->ttl);
  create->add_option("--uses", options->uses, "how many workers may join with it")
      ->check(CLI::Range(1, 1000))
      ->default_str("1");
  line.Add(group, "ls", "list the tokens that can still be used, the newest first",
           Examples("ringctl token ls"), [&line] { return ListTokens(line.common()); });
  const auto id = std::make_shared<std::string>();
  line.Add(group, "revoke", "take a token back", Examples("ringctl token revoke k3v7q2ma"),
           [&line, id] { return RevokeToken(line.common(), *id); })
      ->add_option("TOKEN", *id, "id of the token")
      ->required();
}

// ringctl identity ls, identity revoke NAME [--worker]: who was let in.

namespace {

struct RevokeOptions {
  std::string name;
  bool worker = false;
};

StatusOr<ExitCode> ListIdentities(const Common& common) {
  RING_ASSIGN_OR_RETURN(Client client, Client::Create(common.coordinator));
  RING_ASSIGN_OR_RETURN(const v1::ListIdentitiesResponse identities, client.ListIdentities());
  Print(common.json() ? ToJson(identities).dump(2) + "\n"
                      : RenderIdentities(identities, Terminal::Of(stdout)));
  return ExitCode::kOk;
}

StatusOr<ExitCode> RevokeIdentity(const Common& common, const RevokeOptions& options) {
  v1::RevokeIdentityRequest request;
  request.set_role(options.worker ? v1::ROLE_WORKER : v1::ROLE_UNSPECIFIED);
  request.set_name(options.name);
  RING_ASSIGN_OR_RETURN(Client client, Client::Create(common.coordinator));
  RING_RETURN_IF_ERROR(client.RevokeIdentity(request));
  if (common.json()) {
    Print(Json{{"name", options.name}, {"worker", options.worker}}.dump(2) + "\n");
  }
  Say(
      fmt::format("{} {} is revoked: its certificates are worth nothing, and a new token can let "
                  "that name in again",
                  options.worker ? "worker" : "user", options.name));
  return ExitCode::kOk;
}

}  // namespace

void AddIdentity(CommandLine& line) {
  CLI::App* const group = line.AddGroup("identity", "who was let in, and who is no longer");
  line.Add(group, "ls", "list workers and people that joined", Examples("ringctl identity ls"),
           [&line] { return ListIdentities(line.common()); });
  const auto options = std::make_shared<RevokeOptions>();
  CLI::App* const revoke =
      line.Add(group, "revoke", "end an identity, at once and for good",
               Examples("ringctl identity revoke eva", "ringctl identity revoke b --worker"),
               [&line, options] { return RevokeIdentity(line.common(), *options); });
  revoke->add_option("NAME", options->name, "of the person, or with --worker of the worker")
      ->required();
  revoke->add_flag("--worker", options->worker, "it is the name of a worker");
}

// ringctl authority ls, authority rotate: who signs for the cluster.

namespace {

StatusOr<ExitCode> ListAuthorities(const Common& common) {
  RING_ASSIGN_OR_RETURN(Client client, Client::Create(common.coordinator));
  RING_ASSIGN_OR_RETURN(const v1::ListAuthoritiesResponse authorities, client.ListAuthorities());
  Print(common.json() ? ToJson(authorities).dump(2) + "\n"
                      : RenderAuthorities(authorities, Terminal::Of(stdout)));
  return ExitCode::kOk;
}

StatusOr<ExitCode> RotateAuthority(const Common& common) {
  RING_ASSIGN_OR_RETURN(Client client, Client::Create(common.coordinator));
  RING_ASSIGN_OR_RETURN(const v1::ListAuthoritiesResponse authorities, client.RotateAuthority());
  Print(common.json() ? ToJson(authorities).dump(2) + "\n"
                      : RenderAuthorities(authorities, Terminal::Of(stdout)));
  for (const v1::CertificateAuthority& one : authorities.authorities()) {
    if (!one.signs()) continue;
    Say(
        fmt::format("everybody renews meanwhile, and nothing stops; whoever is off until {} joins "
                    "anew with a token",
                    DateAndTime(one.trusted_until())));
  }
  Say("copy DATA_DIR/pki again: it has the new authority's key");
  return ExitCode::kOk;
}

}  // namespace

void AddAuthority(CommandLine& line) {
  CLI::App* const group = line.AddGroup("authority", "who signs the cluster's certificates");
  line.Add(group, "ls", "list the authorities that are trusted; the one that signs first",
           Examples("ringctl authority ls"), [&line] { return ListAuthorities(line.common()); });
  line.Add(group, "rotate", "make a new authority, which takes the old one's place without a stop",
           Examples("ringctl authority rotate"),
           [&line] { return RotateAuthority(line.common()); });
}

// ringctl audit: who did what, and who was refused.

namespace {

StatusOr<ExitCode> Audit(const Common& common, uint32_t limit) {
  v1::ListAuditRequest request;
  request.set_limit(limit);
  RING_ASSIGN_OR_RETURN(Client client, Client::Create(common.coordinator));
  RING_ASSIGN_OR_RETURN(const v1::ListAuditResponse audit, client.ListAudit(request));
  Print(common.json() ? ToJson(audit).dump(2) + "\n" : RenderAudit(audit, Terminal::Of(stdout)));
  return ExitCode::kOk;
}

}  // namespace

void AddAudit(CommandLine& line) {
  const auto limit = std::make_shared<uint32_t>(100);
  line.Add("audit", "list who let whom in, and who was refused, the newest last",
           Examples("ringctl audit", "ringctl audit -n 1000 -o json"),
           [&line, limit] { return Audit(line.common(), *limit); })
      ->add_option("-n,--limit", *limit, "so many of the newest")
      ->check(CLI::Range(1, 1000))
      ->default_str("100");
}

// ringctl whoami: as whom the coordinator knows this user.

namespace {

StatusOr<ExitCode> WhoAmI(const Common& common) {
  RING_ASSIGN_OR_RETURN(Client client, Client::Create(common.coordinator));
  RING_ASSIGN_OR_RETURN(const v1::WhoAmIResponse who, client.WhoAmI());
  Print(common.json() ? ToJson(who).dump(2) + "\n" : RenderWhoAmI(who));
  return ExitCode::kOk;
}

}  // namespace

void AddWhoAmI(CommandLine& line) {
  line.Add("whoami", "show as whom the coordinator knows you, and your role",
           Examples("ringctl whoami"), [&line] { return WhoAmI(line.common()); });
}

}  // namespace ringmaster::cli
