// AccessStore in the coordinator's database, beside jobs. Store's thread only; owned by
// SqliteStore, whose schema it is a part of.
#pragma once

#include <string>
#include <vector>

#include "coordinator/access/access_store.h"
#include "coordinator/store/sqlite_database.h"

namespace ringmaster::coordinator {

class SqliteAccess : public AccessStore {
 public:
  // Both outlive it; `path` is what errors name.
  SqliteAccess(SqliteDatabase& database, const std::string& path)
      : database_(database), path_(path) {}

  // What a new database is made with.
  [[nodiscard]] static std::vector<std::string> Schema();

  StatusOr<Content> LoadAccess() override;
  // DATA_LOSS: a row cannot be read.
  StatusOr<std::vector<v1::AuditEntry>> LoadAudit(uint64_t after, uint32_t limit) override;
  Status WriteAccess(const AccessChange& change) override;

 private:
  Status LoadTokens(Content* content);
  Status LoadIdentities(Content* content);
  Status Write(const TokenRecord& token);
  Status Write(const RedemptionRecord& redemption);
  Status Write(const IdentityRecord& identity);
  Status Write(const v1::AuditEntry& entry);

  SqliteDatabase& database_;
  const std::string& path_;
};

}  // namespace ringmaster::coordinator
