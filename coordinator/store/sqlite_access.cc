#include "coordinator/store/sqlite_access.h"

#include <algorithm>
#include <utility>

namespace ringmaster::coordinator {
namespace {

template <typename Time>
int64_t CountOf(Time time) {
  return time.time_since_epoch().count();
}

UnixTime TimeAt(const SqlRow& row, int column) {
  return UnixTime(std::chrono::milliseconds(row.Integer(column)));
}

UnixSeconds SecondsAt(const SqlRow& row, int column) {
  return UnixSeconds(std::chrono::seconds(row.Integer(column)));
}

IdentityName IdentityAt(const SqlRow& row, int column) {
  return {static_cast<IdentityKind>(row.Integer(column)), row.Text(column + 1)};
}

SqlValue KindValue(const IdentityName& identity) { return static_cast<int64_t>(identity.kind); }

}  // namespace

std::vector<std::string> SqliteAccess::Schema() {
  return {
      // Times are Unix milliseconds here, ...
      "CREATE TABLE tokens (id TEXT PRIMARY KEY, secret_sha256 BLOB NOT NULL,"
      " role INTEGER NOT NULL, name TEXT NOT NULL, uses_left INTEGER NOT NULL,"
      " created INTEGER NOT NULL, expires INTEGER NOT NULL, created_by TEXT NOT NULL)"
      " WITHOUT ROWID",
      // ... and of certificates Unix seconds.
      "CREATE TABLE redemptions (token TEXT NOT NULL REFERENCES tokens(id) ON DELETE CASCADE,"
      " key_sha256 BLOB NOT NULL, kind INTEGER NOT NULL, name TEXT NOT NULL,"
      " joined INTEGER NOT NULL, PRIMARY KEY (token, key_sha256)) WITHOUT ROWID",
      "CREATE TABLE identities (kind INTEGER NOT NULL, name TEXT NOT NULL, role INTEGER NOT NULL,"
      " joined INTEGER NOT NULL, issued INTEGER NOT NULL, certificate_expires INTEGER NOT NULL,"
      " revoked INTEGER, PRIMARY KEY (kind, name)) WITHOUT ROWID",
      "CREATE TABLE audit (number INTEGER PRIMARY KEY, entry BLOB NOT NULL)",
  };
}

StatusOr<AccessStore::Content> SqliteAccess::LoadAccess() {
  Content content;
  RING_RETURN_IF_ERROR(LoadTokens(&content));
  RING_RETURN_IF_ERROR(LoadIdentities(&content));
  RING_ASSIGN_OR_RETURN(const std::vector<v1::AuditEntry> newest, LoadAudit(0, 1));
  if (!newest.empty()) content.newest_entry = newest.front();
  return content;
}

Status SqliteAccess::LoadTokens(Content* content) {
  RING_RETURN_IF_ERROR(database_.Run(
      "SELECT id, secret_sha256, role, name, uses_left, created, expires, created_by FROM tokens"
      " ORDER BY id",
      {}, [&](const SqlRow& row) {
        content->tokens.push_back({row.Text(0), row.Text(1), static_cast<v1::Role>(row.Integer(2)),
                                   row.Text(3), static_cast<uint32_t>(row.Integer(4)),
                                   TimeAt(row, 5), TimeAt(row, 6), row.Text(7)});
        return absl::OkStatus();
      }));
  return database_.Run(
      "SELECT token, key_sha256, kind, name, joined FROM redemptions ORDER BY token, key_sha256",
      {}, [&](const SqlRow& row) {
        content->redemptions.push_back(
            {row.Text(0), row.Text(1), IdentityAt(row, 2), SecondsAt(row, 4)});
        return absl::OkStatus();
      });
}

Status SqliteAccess::LoadIdentities(Content* content) {
  return database_.Run(
      "SELECT kind, name, role, joined, issued, certificate_expires, revoked FROM identities"
      " ORDER BY kind, name",
      {}, [&](const SqlRow& row) {
        IdentityRecord& record = content->identities.emplace_back();
        record.identity = IdentityAt(row, 0);
        record.role = static_cast<v1::Role>(row.Integer(2));
        record.joined = SecondsAt(row, 3);
        record.issued = SecondsAt(row, 4);
        record.certificate_expires = SecondsAt(row, 5);
        if (!row.IsNull(6)) record.revoked = TimeAt(row, 6);
        return absl::OkStatus();
      });
}

StatusOr<std::vector<v1::AuditEntry>> SqliteAccess::LoadAudit(uint64_t after, uint32_t limit) {
  std::vector<v1::AuditEntry> entries;
  const std::string order = after == 0 ? "DESC" : "ASC";
  RING_RETURN_IF_ERROR(database_.Run(
      "SELECT number, entry FROM audit WHERE number > ? ORDER BY number " + order + " LIMIT ?",
      {static_cast<int64_t>(std::min<uint64_t>(after, INT64_MAX)), int64_t{limit}},
      [&](const SqlRow& row) -> Status {
        if (entries.emplace_back().ParseFromString(row.Text(1))) return absl::OkStatus();
        return DataLoss("{}: entry {} of the audit cannot be read", path_, row.Integer(0));
      }));
  if (after == 0) std::reverse(entries.begin(), entries.end());
  return entries;
}

Status SqliteAccess::WriteAccess(const AccessChange& change) {
  return database_.Transact([&]() -> Status {
    for (const std::string& id : change.forgotten_tokens) {
      RING_RETURN_IF_ERROR(database_.Run("DELETE FROM tokens WHERE id = ?", {id}));
    }
    if (change.token) RING_RETURN_IF_ERROR(Write(*change.token));
    if (change.redemption) RING_RETURN_IF_ERROR(Write(*change.redemption));
    if (change.identity) RING_RETURN_IF_ERROR(Write(*change.identity));
    return change.entry ? Write(*change.entry) : absl::OkStatus();
  });
}

// Not REPLACE, which would take the token's redemptions along.
Status SqliteAccess::Write(const TokenRecord& token) {
  return database_.Run(
      "INSERT INTO tokens (id, secret_sha256, role, name, uses_left, created, expires, created_by)"
      " VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO UPDATE SET"
      " secret_sha256 = excluded.secret_sha256, role = excluded.role, name = excluded.name,"
      " uses_left = excluded.uses_left, created = excluded.created, expires = excluded.expires,"
      " created_by = excluded.created_by",
      {token.id, Bytes{token.secret_sha256}, static_cast<int64_t>(token.role), token.name,
       int64_t{token.uses_left}, CountOf(token.created), CountOf(token.expires), token.created_by});
}

Status SqliteAccess::Write(const RedemptionRecord& redemption) {
  return database_.Run(
      "INSERT OR REPLACE INTO redemptions (token, key_sha256, kind, name, joined)"
      " VALUES (?, ?, ?, ?, ?)",
      {redemption.token, Bytes{redemption.key_sha256}, KindValue(redemption.identity),
       redemption.identity.name, CountOf(redemption.joined)});
}

Status SqliteAccess::Write(const IdentityRecord& record) {
  return database_.Run(
      "INSERT OR REPLACE INTO identities (kind, name, role, joined, issued, certificate_expires,"
      " revoked) VALUES (?, ?, ?, ?, ?, ?, ?)",
      {KindValue(record.identity), record.identity.name, static_cast<int64_t>(record.role),
       CountOf(record.joined), CountOf(record.issued), CountOf(record.certificate_expires),
       record.revoked ? SqlValue(CountOf(*record.revoked)) : SqlValue(std::monostate())});
}

// An entry whose writing failed may be there all the same: nobody was told of it.
Status SqliteAccess::Write(const v1::AuditEntry& entry) {
  const auto number = static_cast<int64_t>(entry.number());
  RING_RETURN_IF_ERROR(database_.Run("INSERT OR REPLACE INTO audit (number, entry) VALUES (?, ?)",
                                     {number, Bytes{entry.SerializeAsString()}}));
  return database_.Run("DELETE FROM audit WHERE number <= ?",
                       {number - static_cast<int64_t>(kMostEntries)});
}

}  // namespace ringmaster::coordinator
