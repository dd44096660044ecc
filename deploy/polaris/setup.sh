#!/bin/sh
# Makes the catalog, the principal, its roles and their grants. What is there already stays, so it may run again.
set -eu
umask 077

catalog=shop
principal=floe
principal_role=floe
catalog_role=floe_writer
privileges="NAMESPACE_CREATE NAMESPACE_READ_PROPERTIES NAMESPACE_DROP TABLE_CREATE TABLE_WRITE_DATA TABLE_DROP"

fail() {
    echo "setup: $*" >&2
    exit 1
}

for name in POLARIS_ROOT_CLIENT_SECRET POLARIS_CLIENT_ID POLARIS_CLIENT_SECRET; do
    eval "value=\${$name:-}"
    case $value in
        '') fail "$name is empty" ;;
        *[!A-Za-z0-9._~-]*) fail "$name: letters and digits only, because it goes into forms and JSON as it is" ;;
    esac
done

bearer=$(mktemp)
trap 'rm -f "$bearer"' EXIT

# token CLIENT_ID CLIENT_SECRET SCOPE: the token, or nothing. Secrets go through pipes and files, not through arguments.
token() {
    printf 'grant_type=client_credentials&client_id=%s&client_secret=%s&scope=%s' "$1" "$2" "$3" |
        curl --silent --max-time 30 --fail --data @- "$POLARIS_URL/api/catalog/v1/oauth/tokens" |
        sed -n 's/.*"access_token" *: *"\([^"]*\)".*/\1/p'
}

present() {
    printf 'Authorization: Bearer %s\n' "$1" >"$bearer"
}

# send WHAT METHOD PATH STATUSES [BODY]: one request. Any other status ends the script with the server's words.
send() {
    answer=$(printf '%s' "${5:-}" | curl --silent --show-error --max-time 30 --request "$2" --header "@$bearer" \
        --header 'Content-Type: application/json' --data-binary @- --write-out '\n%{http_code}' "$POLARIS_URL$3") ||
        fail "$1: Polaris did not answer"
    status=$(printf '%s' "$answer" | tail -n 1)
    case " $4 " in
        *" $status "*) [ "$status" = 409 ] && echo "$1: there already" || echo "$1: done" ;;
        *) fail "$1: $answer" ;;
    esac
}

root=$(token root "$POLARIS_ROOT_CLIENT_SECRET" PRINCIPAL_ROLE:ALL) || true
[ -n "$root" ] || fail "no token for root at $POLARIS_URL: does it run, and was its database made with this secret?"
present "$root"
admin=/api/management/v1

send "catalog $catalog" POST "$admin/catalogs" "201 409" '{"catalog": {
    "type": "INTERNAL",
    "name": "'"$catalog"'",
    "properties": {"default-base-location": "s3://lake/'"$catalog"'", "polaris.config.drop-with-purge.enabled": "true"},
    "storageConfigInfo": {
        "storageType": "S3",
        "allowedLocations": ["s3://lake/'"$catalog"'"],
        "roleArn": "arn:aws:iam::000000000000:role/polaris-lake",
        "region": "us-east-1",
        "endpoint": "'"$S3_ENDPOINT"'",
        "endpointInternal": "'"$S3_ENDPOINT_INTERNAL"'",
        "pathStyleAccess": true,
        "kmsUnavailable": true
    }
}}'
send "principal $principal" POST "$admin/principals" "201 409" '{"principal": {"name": "'"$principal"'"}}'
if [ -z "$(token "$POLARIS_CLIENT_ID" "$POLARIS_CLIENT_SECRET" PRINCIPAL_ROLE:ALL || true)" ]; then
    send "credentials of $principal" POST "$admin/principals/$principal/reset" "200" \
        '{"clientId": "'"$POLARIS_CLIENT_ID"'", "clientSecret": "'"$POLARIS_CLIENT_SECRET"'"}'
fi
send "principal role $principal_role" POST "$admin/principal-roles" "201 409" \
    '{"principalRole": {"name": "'"$principal_role"'"}}'
send "catalog role $catalog_role" POST "$admin/catalogs/$catalog/catalog-roles" "201 409" \
    '{"catalogRole": {"name": "'"$catalog_role"'"}}'
send "$principal_role for $principal" PUT "$admin/principals/$principal/principal-roles" "201" \
    '{"principalRole": {"name": "'"$principal_role"'"}}'
send "$catalog_role for $principal_role" PUT "$admin/principal-roles/$principal_role/catalog-roles/$catalog" "201" \
    '{"catalogRole": {"name": "'"$catalog_role"'"}}'
for privilege in $privileges; do
    send "$privilege for $catalog_role" PUT "$admin/catalogs/$catalog/catalog-roles/$catalog_role/grants" "201" \
        '{"grant": {"type": "catalog", "privilege": "'"$privilege"'"}}'
done

# As the project will come: with its own credentials and its own role only.
own=$(token "$POLARIS_CLIENT_ID" "$POLARIS_CLIENT_SECRET" "PRINCIPAL_ROLE:$principal_role") || true
[ -n "$own" ] || fail "no token for $principal"
present "$own"
send "look in as $principal" GET "/api/catalog/v1/$catalog/namespaces" "200"
echo "setup: everything is there"
