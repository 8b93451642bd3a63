# link.sh -o LIBRARY OBJECT...: joins the objects behind the header of a library; with $FAKE_SOURCES/half-link it stops half-way, once.
library="$2"
shift 2
if rm "$FAKE_SOURCES/half-link" 2> /dev/null; then
  echo half > "$library"
  sleep 60
fi
{
  printf '\177ELF\002\001'
  head -c 58 /dev/zero
  for object in "$@"; do tail -c +65 "$object"; done
} > "$library"
