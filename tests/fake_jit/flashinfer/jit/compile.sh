# compile.sh -c SOURCE -o OBJECT: runs the source, with $OBJECT, and takes down what is compiled when. An object is the
# source behind the header of one.
echo "begins $(basename "$2") $(date +%s.%N)" >> "$FAKE_SOURCES/log"
OBJECT="$4" sh "$2" || exit 1
{ printf '\177ELF\002\001'; head -c 58 /dev/zero; cat "$2"; } > "$4" || exit 1
echo "ends $(basename "$2") $(date +%s.%N)" >> "$FAKE_SOURCES/log"
